package control

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Events posts events until its context ends; what is queued then is lost, as in
// a process that dies.
type Events struct{ broadcaster record.EventBroadcaster }

// NewEvents starts posting. Shutdown stops it.
func NewEvents(ctx context.Context, client kubernetes.Interface) *Events {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(sink{ctx, client.CoreV1().Events("")})
	return &Events{b}
}

// Recorder returns a recorder whose events name the component as their source.
func (e *Events) Recorder(component string) record.EventRecorder {
	return e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// Shutdown stops posting.
func (e *Events) Shutdown() { e.broadcaster.Shutdown() }

// sink ties the requests to the life of the component, which the sink of client-go does not.
type sink struct {
	ctx    context.Context
	events typedv1.EventInterface
}

func (s sink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.unlessOver(e)(s.events.CreateWithEventNamespaceWithContext(s.ctx, e))
}

func (s sink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.unlessOver(e)(s.events.UpdateWithEventNamespaceWithContext(s.ctx, e))
}

func (s sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.unlessOver(e)(s.events.PatchWithEventNamespaceWithContext(s.ctx, e, data))
}

// unlessOver hides the error of a request that the end of the component cut off: nobody is left to try again.
func (s sink) unlessOver(e *corev1.Event) func(*corev1.Event, error) (*corev1.Event, error) {
	return func(stored *corev1.Event, err error) (*corev1.Event, error) {
		if s.ctx.Err() != nil {
			return e, nil
		}
		return stored, err
	}
}
