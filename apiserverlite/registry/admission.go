package registry

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The operations of Attributes.
const (
	opCreate = "CREATE"
	opUpdate = "UPDATE"
)

var (
	podResource           = corev1.Resource("pods")
	claimResource         = corev1.Resource("persistentvolumeclaims")
	volumeResource        = corev1.Resource("persistentvolumes")
	accountResource       = corev1.Resource("serviceaccounts")
	classResource         = storagev1.Resource("storageclasses")
	attributesResource    = storagev1.Resource("volumeattributesclasses")
	runtimeClassResource  = schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}
	priorityClassResource = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}
)

// plugin is one admission plugin: what it does to which writes of which resource itself (of any, if empty).
// Subresources are not its business.
type plugin struct {
	resource         schema.GroupResource
	operations       []string
	mutate, validate func(ctx context.Context, a Attributes) error
}

type plugins []plugin

// newAdmission lists the plugins in upstream's order. Upstream's NamespaceLifecycle comes before them all and
// is part of the server.
func newAdmission(o Options) Admission {
	return plugins{
		{resource: podResource, operations: []string{opCreate}, mutate: serviceAccount{tokenVolume: o.TokenVolume, unattended: o.NoControllers}.admit},
		{resource: podResource, operations: []string{opCreate, opUpdate}, mutate: podPriority},
		{resource: priorityClassResource, operations: []string{opCreate, opUpdate}, validate: oneDefaultPriority},
		{resource: podResource, operations: []string{opCreate, opUpdate}, mutate: tolerateForAWhile},
		{resource: podResource, operations: []string{opCreate}, mutate: runtimeClass, validate: overheadOfClass},
		{resource: claimResource, operations: []string{opCreate}, mutate: defaultClass},
		{resource: claimResource, operations: []string{opCreate}, mutate: protect("kubernetes.io/pvc-protection")},
		{resource: volumeResource, operations: []string{opCreate}, mutate: protect("kubernetes.io/pv-protection")},
		{resource: attributesResource, operations: []string{opCreate}, mutate: protect("kubernetes.io/vac-protection")},
		{resource: claimResource, operations: []string{opUpdate}, validate: claimResize},
		{resource: podResource, operations: []string{opCreate}, mutate: limitDefaults, validate: withinLimits},
		{resource: claimResource, operations: []string{opCreate, opUpdate}, validate: withinLimits},
		{resource: serviceResource, operations: []string{opCreate, opUpdate}, mutate: addresses}, // upstream's is the store's, after admission
		{operations: []string{opCreate, opUpdate}, validate: withinQuota},
	}
}

func (p plugins) Mutate(ctx context.Context, a Attributes) error {
	return p.each(a, func(x plugin) error {
		if x.mutate == nil {
			return nil
		}
		return x.mutate(ctx, a)
	})
}

func (p plugins) Validate(ctx context.Context, a Attributes) error {
	return p.each(a, func(x plugin) error {
		if x.validate == nil {
			return nil
		}
		return x.validate(ctx, a)
	})
}

func (p plugins) each(a Attributes, f func(plugin) error) error {
	if a.Subresource != "" || a.Obj == nil {
		return nil
	}
	gr := a.Resource.GR()
	for _, x := range p {
		if x.resource != gr && !x.resource.Empty() || !slices.Contains(x.operations, a.Operation) {
			continue
		}
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// forbid is how a plugin refuses.
func forbid(a Attributes, why error) error {
	name := a.Name
	if m := accessor(a.Obj); name == "" {
		// No name has been generated yet.
		name = "Unknown"
		switch {
		case m.GetName() != "":
			name = m.GetName()
		case m.GetGenerateName() != "":
			name = m.GetGenerateName()
		}
	}
	return apierrors.NewForbidden(a.Resource.GR(), name, why)
}
