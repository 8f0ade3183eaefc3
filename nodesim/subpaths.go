package nodesim

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// prepareMounts makes ready what the pod's containers mount. It comes before they
// start; what a container that runs has is left alone. What cannot be had is recorded and
// holds its container; it is an error if the pod cannot go on without that container.
func (w *worker) prepareMounts(ctx context.Context, pod *v1.Pod) error {
	clear(w.runtime.held)
	if w.runtime.state != running {
		for i := range pod.Spec.InitContainers {
			if x := &pod.Spec.InitContainers[i]; !w.prepare(ctx, pod, x, initPath(x)) {
				return fmt.Errorf("prepare container %s: %s", x.Name, w.runtime.held[x.Name])
			}
		}
		for i := range pod.Spec.Containers {
			if x := &pod.Spec.Containers[i]; !w.prepare(ctx, pod, x, containerPath(x)) {
				return fmt.Errorf("prepare container %s: %s", x.Name, w.runtime.held[x.Name])
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if x := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon); w.runtime.beside[x.Name] == nil {
			w.prepare(ctx, pod, &x, ephemeralPath(x.Name))
		}
	}
	return nil
}

// prepare makes ready what one container mounts, and tells whether it has all and may start.
func (w *worker) prepare(ctx context.Context, pod *v1.Pod, x *v1.Container, path string) bool {
	_, err := w.volumes.ContainerMounts(ctx, pod, x)
	if err == nil {
		err = mayNotBeRoot(pod, x)
	}
	if err != nil {
		w.runtime.held[x.Name] = err.Error()
		w.tellOf(pod, happening{path, v1.EventTypeWarning, "Failed", "Error: " + err.Error()})
	}
	return err == nil
}
