package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	serviceutil "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

func hasAddress(s *core.Service) bool { return s.Spec.Type != core.ServiceTypeExternalName }

func hasNodePorts(s *core.Service) bool {
	return s.Spec.Type == core.ServiceTypeNodePort || s.Spec.Type == core.ServiceTypeLoadBalancer
}

func nodePorts(s *core.Service) sets.Set[int32] {
	out := sets.New[int32]()
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out.Insert(p.NodePort)
		}
	}
	return out
}

func sameAddresses(a, b *core.Service) bool {
	return a.Spec.ClusterIP == b.Spec.ClusterIP && slices.Equal(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

// keepAddresses lets a writer leave out what the service was given.
func keepAddresses(s, old *core.Service) {
	now, was := &s.Spec, &old.Spec
	if hasAddress(s) && hasAddress(old) {
		if now.ClusterIP == "" {
			now.ClusterIP = was.ClusterIP
		}
		if len(now.ClusterIPs) == 0 {
			now.ClusterIPs = slices.Clone(was.ClusterIPs)
		}
	}
	if hasNodePorts(s) && hasNodePorts(old) {
		kept, byName := nodePorts(s).Intersection(nodePorts(old)), map[string]int32{}
		for _, p := range was.Ports {
			byName[p.Name] = p.NodePort
		}
		for i := range now.Ports {
			if p := &now.Ports[i]; p.NodePort == 0 && !kept.Has(byName[p.Name]) {
				p.NodePort = byName[p.Name]
			}
		}
	}
	if serviceutil.NeedsHealthCheck(s) && serviceutil.NeedsHealthCheck(old) && now.HealthCheckNodePort == 0 {
		now.HealthCheckNodePort = was.HealthCheckNodePort
	}
}

// pairAddresses makes up for a writer who knows the single address only, and not the list.
func pairAddresses(s, old *core.Service) {
	now := &s.Spec
	if old == nil {
		if now.ClusterIP != "" && len(now.ClusterIPs) == 0 {
			now.ClusterIPs = []string{now.ClusterIP}
		}
		return
	}
	was := &old.Spec
	if len(now.ClusterIPs) == 0 && now.ClusterIP == was.ClusterIP {
		now.ClusterIPs = slices.Clone(was.ClusterIPs)
	}
	if now.ClusterIP == was.ClusterIP || !slices.Equal(now.ClusterIPs, was.ClusterIPs) {
		return
	}
	if now.ClusterIP == "" {
		now.ClusterIPs = nil
		return
	}
	now.ClusterIPs = []string{now.ClusterIP}
}

// giveFamilies settles a service's policy and families, in a cluster that has IPv4 alone.
func giveFamilies(s, old *core.Service) field.ErrorList {
	if !hasAddress(s) || staysAsPreferred(s, old) {
		return nil
	}
	spec := &s.Spec
	bare := spec.ClusterIP == core.ClusterIPNone && len(spec.Selector) == 0 // somebody else says where it leads
	if spec.IPFamilyPolicy == nil {
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		case bare:
			spec.IPFamilyPolicy = ptr.To(core.IPFamilyPolicyRequireDualStack)
		default:
			spec.IPFamilyPolicy = ptr.To(core.IPFamilyPolicySingleStack)
		}
	}
	if errs := validation.ValidateServiceClusterIPsRelatedFields(s, old); len(errs) > 0 {
		return errs
	}
	errs := contradictions(s, old)
	for i, ip := range spec.ClusterIPs {
		if ip == core.ClusterIPNone {
			break
		}
		if i < len(spec.IPFamilies) {
			continue
		}
		if netutils.IsIPv6String(ip) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs, "IPv6 is not configured on this cluster"))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, core.IPv4Protocol)
	}
	if len(errs) > 0 {
		return errs
	}
	single := *spec.IPFamilyPolicy == core.IPFamilyPolicySingleStack
	if bare {
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []core.IPFamily{core.IPv4Protocol}
		}
		if len(spec.IPFamilies) == 1 && !single {
			other := core.IPv6Protocol
			if spec.IPFamilies[0] == other {
				other = core.IPv4Protocol
			}
			spec.IPFamilies = append(spec.IPFamilies, other)
		}
		return nil
	}
	if *spec.IPFamilyPolicy == core.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, f := range spec.IPFamilies {
		if f != core.IPv4Protocol {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	if len(errs) == 0 && len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []core.IPFamily{core.IPv4Protocol}
	}
	return errs
}

// staysAsPreferred tells of a service that would like two families and is left with what it got.
func staysAsPreferred(s, old *core.Service) bool {
	prefers := func(s *core.Service) bool {
		return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == core.IPFamilyPolicyPreferDualStack
	}
	return old != nil && s.Spec.Type == old.Spec.Type && prefers(s) && prefers(old) && sameAddresses(s, old) &&
		equality.Semantic.DeepEqual(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// contradictions are a policy that does not go with the addresses and families.
func contradictions(s, old *core.Service) (errs field.ErrorList) {
	spec, at := &s.Spec, field.NewPath("spec", "ipFamilyPolicy")
	wrong := func(why string) { errs = append(errs, field.Invalid(at, spec.IPFamilyPolicy, why)) }
	if *spec.IPFamilyPolicy != core.IPFamilyPolicySingleStack {
		if old == nil {
			return nil
		}
		if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
			wrong("must be 'SingleStack' to release the secondary cluster IP")
		}
		if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
			wrong("must be 'SingleStack' to release the secondary IP family")
		}
		return errs
	}
	if old != nil && len(spec.ClusterIPs) > 1 && sameAddresses(s, old) {
		spec.ClusterIPs = spec.ClusterIPs[:1]
	}
	if old != nil && len(spec.IPFamilies) > 1 && equality.Semantic.DeepEqual(spec.IPFamilies, old.Spec.IPFamilies) {
		spec.IPFamilies = spec.IPFamilies[:1]
	}
	if len(spec.ClusterIPs) == 2 {
		wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	}
	if len(spec.IPFamilies) == 2 {
		wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	}
	return errs
}
