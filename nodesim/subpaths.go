package nodesim

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// prepareMounts makes ready what the pod's containers mount. It comes before they
// start; what a container that runs has is left alone.
func (w *worker) prepareMounts(ctx context.Context, pod *v1.Pod) error {
	if w.runtime.state == running {
		return nil
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range containers {
		c := &containers[i]
		if _, err := w.volumes.ContainerMounts(ctx, pod, c); err != nil {
			w.recorder.Event(pod, v1.EventTypeWarning, "Failed", "Error: "+err.Error())
			return fmt.Errorf("prepare container %s: %w", c.Name, err)
		}
	}
	return nil
}
