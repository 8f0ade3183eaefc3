package labobjects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// events tells of what the laboratory did. There is one event for an object and a reason,
// which counts; an event that cannot be written is left out.
type events struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
	last   map[string]*seenEvent
}

type seenEvent struct {
	name  string
	first metav1.Time
	count int32
}

// maxEvents bounds what is remembered of them.
const maxEvents = 1000

func (e *events) say(ctx context.Context, about corev1.ObjectReference, reason, message string) {
	now := metav1.NewTime(e.clock.Now())
	key := string(about.UID) + "/" + about.Name + "/" + reason
	s := e.last[key]
	if s == nil {
		if len(e.last) >= maxEvents {
			clear(e.last)
		}
		s = &seenEvent{name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()), first: now}
		e.last[key] = s
	}
	s.count++
	if len(message) > 1024 {
		message = message[:1024]
	}
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: metav1.NamespaceDefault}, InvolvedObject: about,
		Type: corev1.EventTypeNormal, Reason: reason, Message: message, Count: s.count, FirstTimestamp: s.first, LastTimestamp: now,
		Source: corev1.EventSource{Component: "drydock-lab"}, ReportingController: "drydock-lab",
	}
	api := e.client.CoreV1().Events(metav1.NamespaceDefault)
	if s.count > 1 {
		if _, err := api.Update(ctx, ev, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			return
		}
	}
	api.Create(ctx, ev, metav1.CreateOptions{})
}

func aboutFault(f *v1alpha1.Fault) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fault", Name: f.Name, UID: f.UID}
}

// aboutNode is how a kubelet refers to its node in events.
func aboutNode(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}
