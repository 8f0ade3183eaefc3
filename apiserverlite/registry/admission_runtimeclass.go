package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// runtimeClass gives a pod what its class says: the overhead, and the nodes that have the handler.
func runtimeClass(_ context.Context, a Attributes) error {
	p := a.Obj.(*corev1.Pod)
	c, err := classOfPod(a, p)
	if err != nil || c == nil {
		return err
	}
	switch {
	case c.Overhead == nil:
	case len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(p.Spec.Overhead, c.Overhead.PodFixed):
		return forbid(a, fmt.Errorf("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
	default:
		p.Spec.Overhead = maps.Clone(c.Overhead.PodFixed)
	}
	if c.Scheduling == nil {
		return nil
	}
	for k, v := range c.Scheduling.NodeSelector {
		if have, ok := p.Spec.NodeSelector[k]; ok && have != v {
			return forbid(a, fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", k, v, k, have))
		}
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[k] = v
	}
	for _, t := range c.Scheduling.Tolerations {
		if !slices.ContainsFunc(p.Spec.Tolerations, func(x corev1.Toleration) bool { return equality.Semantic.DeepEqual(x, t) }) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, t)
		}
	}
	return nil
}

// classOfPod is nil for a pod that names none.
func classOfPod(a Attributes, p *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if p.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	name := *p.Spec.RuntimeClassName
	o, err := a.Reader.Get(runtimeClassResource, "", name)
	if apierrors.IsNotFound(err) {
		return nil, forbid(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	if err != nil {
		return nil, err
	}
	c, ok := o.(*nodev1.RuntimeClass)
	if !ok {
		return nil, fmt.Errorf("runtime class %s is stored as %T", name, o)
	}
	return c, nil
}

// overheadOfClass refuses an overhead that no class gives.
func overheadOfClass(_ context.Context, a Attributes) error {
	p := a.Obj.(*corev1.Pod)
	c, err := classOfPod(a, p)
	if err != nil {
		return err
	}
	if p.Spec.Overhead != nil && (c == nil || c.Overhead == nil) {
		return forbid(a, fmt.Errorf("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	return nil
}
