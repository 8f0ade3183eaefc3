package registry

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// nodes keep the status they are created with: that is how a kubelet registers.
func nodes() *Resource {
	warn := func(_ context.Context, n, _ *core.Node) []string { return nodeWarnings(n) }
	main := rules[core.Node]{
		unconditional: true,
		prepareCreate: func(n *core.Node) {
			n.Spec.ConfigSource, n.Status.Config = nil, nil
			n.Spec.PodPreemptionPolicy = nil // its gate is off
			allocateAll(n)
		},
		validate:   validation.ValidateNode,
		warnCreate: func(ctx context.Context, n *core.Node) []string { return warn(ctx, n, nil) },
		prepareUpdate: func(n, old *core.Node) {
			n.Status = old.Status
			if old.Spec.ConfigSource == nil {
				n.Spec.ConfigSource = nil
			}
			if old.Spec.PodPreemptionPolicy == nil {
				n.Spec.PodPreemptionPolicy = nil
			}
		},
		validateUpdate: func(n, old *core.Node) field.ErrorList {
			return append(validation.ValidateNode(n), validation.ValidateNodeUpdate(n, old)...)
		},
		warnUpdate:  warn,
		ignored:     []*fieldpath.Set{path("status")},
		declarative: declarative{options: map[string]bool{string(features.InPlacePodVerticalScalingSchedulerPreemption): false}},
	}
	status := main
	status.prepareUpdate = func(n, old *core.Node) {
		n.Spec = old.Spec
		if old.Status.Config == nil {
			n.Status.Config = nil
		}
		allocateAll(n)
	}
	status.validateUpdate = validation.ValidateNodeUpdate
	status.warnUpdate = nil
	status.ignored = []*fieldpath.Set{path("spec")}

	return resource(kind[core.Node, core.NodeList]{
		gvk: corev1.SchemeGroupVersion.WithKind("Node"), plural: "nodes", shortNames: []string{"no"}, cluster: true,
		object: alloc[corev1.Node](), list: alloc[corev1.NodeList](),
		rules: main, parts: map[string]rules[core.Node]{"status": status},
		others: map[string]Subresource{"proxy": {Verbs: []string{"create", "delete", "get", "patch", "update"}, GVK: corev1.SchemeGroupVersion.WithKind("NodeProxyOptions")}},
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
		},
	})
}

func nodeWarnings(n *core.Node) []string {
	var out []string
	if n.Spec.ConfigSource != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		out = append(out, utilvalidation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return out
}

// allocateAll is the default of what can be had of a node. Upstream fills it in whenever one is read.
func allocateAll(n *core.Node) {
	if len(n.Status.Allocatable) == 0 {
		n.Status.Allocatable = maps.Clone(n.Status.Capacity)
	}
}
