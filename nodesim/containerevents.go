package nodesim

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// happening is what a kubelet tells of one container by an event.
type happening struct {
	path   string // of the container in the pod, as an event's involvedObject has it
	kind   string
	reason string
	text   string
}

// news gathers happenings in the order in which they happened, until the worker tells
// them. A kubelet tells of a start before the status says that the container runs; so
// the worker tells the news before it writes the status, and waits for neither.
type news []happening

func containerPath(c *v1.Container) string { return fmt.Sprintf("spec.containers{%s}", c.Name) }
func initPath(c *v1.Container) string      { return fmt.Sprintf("spec.initContainers{%s}", c.Name) }
func ephemeralPath(name string) string     { return fmt.Sprintf("spec.ephemeralContainers{%s}", name) }

// started tells that a container was created and started. There is no image that could have been pulled.
func (n *news) started(path string) {
	*n = append(*n, happening{path, v1.EventTypeNormal, "Created", "Container created"},
		happening{path, v1.EventTypeNormal, "Started", "Container started"})
}

// killing tells that a container that runs is to end.
func (n *news) killing(path, name string) {
	*n = append(*n, happening{path, v1.EventTypeNormal, "Killing", "Stopping container " + name})
}

// backOff tells that a container waits for its next run.
func (n *news) backOff(pod *v1.Pod, path, name string) {
	*n = append(*n, happening{path, v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, pod.Name, pod.Namespace, pod.UID)})
}

// tellNews hands the events to the recorder, which writes them on its own.
func (w *worker) tellNews(pod *v1.Pod) {
	for _, h := range w.runtime.news {
		w.tellOf(pod, h)
	}
	w.runtime.news = nil
}

// tellOf records an event of a container: the object is the pod, with the path of the container.
func (w *worker) tellOf(pod *v1.Pod, h happening) {
	w.recorder.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, FieldPath: h.path,
	}, h.kind, h.reason, h.text)
}
