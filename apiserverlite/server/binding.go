package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/storage"
)

var (
	podsResource  = schema.GroupResource{Resource: "pods"}
	nodesResource = schema.GroupResource{Resource: "nodes"}
)

// decodeInto reads a body of one kind, as subresources have.
func decodeInto[T runtime.Object](x *exchange, validation string, into T, gvk schema.GroupVersionKind) (T, error) {
	var none T
	body, err := x.body()
	if err != nil {
		return none, err
	}
	m, err := bodyMedia(x.r, true)
	if err != nil {
		return none, err
	}
	o, problems, err := x.s.codecs.decodeBody(body, m, validation, into, gvk)
	if err != nil {
		return none, err
	}
	x.problems(problems)
	out, ok := o.(T)
	if !ok {
		return none, badRequest("the body is a %T, expected %s", o, gvk.Kind)
	}
	return out, nil
}

func created() reply {
	return reply{code: http.StatusCreated, object: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}}
}

// bind assigns a pod to a node: POST pods/x/binding, or bindings with the pod's name in the body.
func (x *exchange) bind(ctx context.Context, pod string) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	b, err := decodeInto(x, o.validation, &corev1.Binding{}, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return reply{}, err
	}
	if pod == "" {
		pod = b.Name
	}
	switch {
	case b.Name != pod:
		return reply{}, badRequest("name in URL does not match name in Binding object")
	case b.Namespace != "" && b.Namespace != x.in.namespace:
		return reply{}, badRequest("the namespace of the provided object does not match the namespace sent on the request")
	case b.Target.Kind != "" && b.Target.Kind != "Node":
		return reply{}, badRequest("must be empty or 'Node': target.kind %q", b.Target.Kind)
	case b.Target.Name == "":
		return reply{}, badRequest("target.name: a node name is required")
	}
	if err := x.s.assign(ctx, x.in.namespace, pod, b, o.dryRun); err != nil {
		return reply{}, err
	}
	return created(), nil
}

func (s *Server) assign(ctx context.Context, namespace, name string, b *corev1.Binding, dryRun bool) error {
	key := storage.Key{Resource: podsResource, Namespace: namespace, Name: name}
	for {
		e, ok := s.store.Get(key)
		if !ok {
			return notFound(podsResource, name)
		}
		old, ok := e.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("%s is a %T", key, e.Object)
		}
		pod, err := s.assigned(old, b)
		if err != nil {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, err)
		}
		if dryRun {
			return nil
		}
		_, err = s.store.Write(ctx, storage.Op{Key: key, Object: pod, Expect: e.Revision})
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
	}
}

func (s *Server) assigned(old *corev1.Pod, b *corev1.Binding) (*corev1.Pod, error) {
	switch {
	case b.UID != "" && b.UID != old.UID:
		return nil, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, old.UID) //nolint:staticcheck // upstream's text
	case old.DeletionTimestamp != nil:
		return nil, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", old.Name)
	case old.Spec.NodeName != "":
		return nil, fmt.Errorf("pod %v is already assigned to node %q", old.Name, old.Spec.NodeName)
	case len(old.Spec.SchedulingGates) > 0:
		return nil, fmt.Errorf("pod %v has non-empty .spec.schedulingGates", old.Name)
	}
	pod := old.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	pod.Status.NominatedNodeName = ""
	if len(b.Annotations) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, b.Annotations)
	}
	s.copyTopology(pod, b.Target.Name)
	setScheduled(pod, metav1.NewTime(s.clock.Now()).Rfc3339Copy())
	return pod, nil
}

// copyTopology gives the pod its node's zone and region, unless it has labels of that name.
func (s *Server) copyTopology(pod *corev1.Pod, node string) {
	e, ok := s.store.Get(storage.Key{Resource: nodesResource, Name: node})
	if !ok {
		return
	}
	n, ok := e.Object.(*corev1.Node)
	if !ok {
		return
	}
	for _, l := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		v, has := n.Labels[l]
		if _, taken := pod.Labels[l]; !has || taken {
			continue
		}
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[l] = v
	}
}

func setScheduled(pod *corev1.Pod, now metav1.Time) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.PodScheduled {
			continue
		}
		if c.Status != corev1.ConditionTrue {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
}
