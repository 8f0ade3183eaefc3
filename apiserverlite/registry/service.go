package registry

import (
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// services are kept, because manifests of stateful sets bring them. Their addresses lead nowhere: there is no
// network between simulated pods, and nothing makes endpoints of them.
func services() *Resource {
	main := rules[core.Service]{
		createOnUpdate: true, unconditional: true,
		prepareCreate: func(s *core.Service) {
			s.Status = core.ServiceStatus{}
			giveAddress(s)
		},
		validate: validation.ValidateServiceCreate,
		prepareUpdate: func(s, old *core.Service) {
			s.Status = old.Status
			if s.Spec.ClusterIP == "" && s.Spec.Type != core.ServiceTypeExternalName && old.Spec.Type != core.ServiceTypeExternalName { // a replace that does not know it
				s.Spec.ClusterIP, s.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
				s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = old.Spec.IPFamilies, old.Spec.IPFamilyPolicy
			}
			giveAddress(s)
		},
		validateUpdate: func(s, old *core.Service) field.ErrorList { return validation.ValidateServiceUpdate(s, old) },
		ignored:        []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(s, old *core.Service) { s.Spec = old.Spec }
	status.validateUpdate = validation.ValidateServiceStatusUpdate
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

// giveAddress fills in the cluster IP, from the uid so that it needs no record of those in use.
func giveAddress(s *core.Service) {
	if s.Spec.Type == core.ServiceTypeExternalName {
		return
	}
	if s.Spec.ClusterIP == "" {
		h := fnv.New32a()
		h.Write([]byte(s.UID))
		n := h.Sum32()%(1<<20-512) + 256
		s.Spec.ClusterIP = fmt.Sprintf("10.%d.%d.%d", 96+n>>16, n>>8&255, n&255)
	}
	if len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []core.IPFamily{core.IPv4Protocol}
	}
	if s.Spec.IPFamilyPolicy == nil {
		single := core.IPFamilyPolicySingleStack
		s.Spec.IPFamilyPolicy = &single
	}
}
