package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	serviceutil "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// services are kept, because manifests of stateful sets bring them. Their addresses lead nowhere: there is no
// network between simulated pods, and nothing makes endpoints of them. Admission gives the addresses.
func services() *Resource {
	main := rules[core.Service]{
		createOnUpdate: true, unconditional: true,
		prepareCreate: func(s *core.Service) {
			s.Status = core.ServiceStatus{}
			dropTraffic(s)
		},
		validate:   validation.ValidateServiceCreate,
		warnCreate: func(_ context.Context, s *core.Service) []string { return serviceutil.GetWarningsForService(s, nil) },
		prepareUpdate: func(s, old *core.Service) {
			s.Status = old.Status
			dropOfOtherTypes(s, old)
			dropTraffic(s)
		},
		validateUpdate: func(s, old *core.Service) field.ErrorList { return validation.ValidateServiceUpdate(s, old) },
		warnUpdate: func(_ context.Context, s, old *core.Service) []string {
			return serviceutil.GetWarningsForService(s, old)
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(s, old *core.Service) { s.Spec = old.Spec }
	status.validateUpdate = validation.ValidateServiceStatusUpdate
	status.warnUpdate = func(_ context.Context, s, _ *core.Service) (out []string) {
		for i, in := range s.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				out = append(out, utilvalidation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), in.IP)...)
			}
		}
		return out
	}
	status.ignored = []*fieldpath.Set{path("spec")}
	return resource(kind[core.Service, core.ServiceList]{
		gvk: corev1.SchemeGroupVersion.WithKind("Service"), plural: "services", shortNames: []string{"svc"}, categories: inAll,
		object: alloc[corev1.Service](), list: alloc[corev1.ServiceList](),
		rules: main, parts: map[string]rules[core.Service]{"status": status},
		fields: func(o runtime.Object) fields.Set {
			s := o.(*corev1.Service)
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
	})
}

// dropTraffic hides what an external name has no use for, if it is right.
func dropTraffic(s *core.Service) {
	p := s.Spec.InternalTrafficPolicy
	if s.Spec.Type == core.ServiceTypeExternalName && p != nil && (*p == core.ServiceInternalTrafficPolicyCluster || *p == core.ServiceInternalTrafficPolicyLocal) {
		s.Spec.InternalTrafficPolicy = nil
	}
}

// dropOfOtherTypes empties what a service of the new type cannot have, if the old one had it and the writer leaves it as it
// was. What the writer changes is for validation to refuse.
func dropOfOtherTypes(s, old *core.Service) {
	now, was := &s.Spec, &old.Spec
	if hasAddress(old) && !hasAddress(s) {
		if sameAddresses(s, old) {
			now.ClusterIP, now.ClusterIPs = "", nil
		}
		if equality.Semantic.DeepEqual(now.IPFamilies, was.IPFamilies) {
			now.IPFamilies = nil
		}
		if equality.Semantic.DeepEqual(now.IPFamilyPolicy, was.IPFamilyPolicy) {
			now.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && nodePorts(old).HasAll(nodePorts(s).UnsortedList()...) {
		for i := range now.Ports {
			now.Ports[i].NodePort = 0
		}
	}
	if serviceutil.NeedsHealthCheck(old) && !serviceutil.NeedsHealthCheck(s) && now.HealthCheckNodePort == was.HealthCheckNodePort {
		now.HealthCheckNodePort = 0
	}
	if balanced := core.ServiceTypeLoadBalancer; was.Type == balanced && now.Type != balanced {
		if was.AllocateLoadBalancerNodePorts != nil && equality.Semantic.DeepEqual(now.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			now.AllocateLoadBalancerNodePorts = nil
		}
		if equality.Semantic.DeepEqual(now.LoadBalancerClass, was.LoadBalancerClass) {
			now.LoadBalancerClass = nil
		}
	}
	if serviceutil.ExternallyAccessible(old) && !serviceutil.ExternallyAccessible(s) && now.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		now.ExternalTrafficPolicy = ""
	}
	if now.Type != core.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = core.LoadBalancerStatus{}
	}
}
