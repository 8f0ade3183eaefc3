package registry_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func serviceOf(t *testing.T, doc string) *corev1.Service {
	t.Helper()
	return parse(t, find(t, "services"), doc).(*corev1.Service)
}

func TestServicesGetAddressesAndPortsOfTheirOwn(t *testing.T) {
	a, services := reg(t).Admission(), corev1.Resource("services")
	world := memory{}
	ips, ports := map[string]bool{}, map[int32]bool{}
	for _, name := range []string{"a", "b", "c"} {
		s := serviceOf(t, `{metadata: {name: `+name+`, namespace: ns}, spec: {type: NodePort, selector: {a: b}, ports: [{name: t, port: 80}, {name: u, port: 80, protocol: UDP}, {name: v, port: 81}]}}`)
		if err := admit(t, a, "services", s, nil, world); err != nil {
			t.Fatal(err)
		}
		p := s.Spec.Ports
		if !strings.HasPrefix(s.Spec.ClusterIP, "10.") || ips[s.Spec.ClusterIP] || s.Spec.ClusterIPs[0] != s.Spec.ClusterIP || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
			t.Errorf("address: %+v", s.Spec)
		}
		if p[0].NodePort < 30000 || p[0].NodePort > 32767 || p[1].NodePort != p[0].NodePort || p[2].NodePort == p[0].NodePort || ports[p[0].NodePort] || ports[p[2].NodePort] {
			t.Errorf("ports: %+v", p)
		}
		ips[s.Spec.ClusterIP], ports[p[0].NodePort], ports[p[2].NodePort] = true, true, true
		world[services] = append(world[services], s)
	}
	first := world[services][0].(*corev1.Service)

	// A writer may leave out what was given, and nobody gets what another has.
	next := serviceOf(t, `{metadata: {name: a, namespace: ns}, spec: {type: NodePort, selector: {a: c}, ports: [{name: t, port: 90}]}}`)
	if err := admit(t, a, "services", next, first, world); err != nil || next.Spec.ClusterIP != first.Spec.ClusterIP || next.Spec.Ports[0].NodePort != first.Spec.Ports[0].NodePort {
		t.Errorf("update: %+v: %v", next.Spec, err)
	}
	thief := serviceOf(t, `{metadata: {name: d, namespace: ns}, spec: {type: NodePort, ports: [{port: 80}]}}`)
	thief.Spec.Ports[0].NodePort = first.Spec.Ports[0].NodePort
	if err := admit(t, a, "services", thief, nil, world); err == nil || !strings.Contains(err.Error(), "spec.ports[0].nodePort: Invalid value") || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("a port that is taken: %v", err)
	}
	thief.Spec.Ports[0].NodePort, thief.Spec.ClusterIP = 0, first.Spec.ClusterIP
	if err := admit(t, a, "services", thief, nil, world); err == nil || !strings.Contains(err.Error(), "provided IP is already allocated") {
		t.Errorf("an address that is taken: %v", err)
	}
	thief.Spec.ClusterIP, thief.Spec.Ports[0].NodePort = "", 80
	if err := admit(t, a, "services", thief, nil, world); err == nil || !strings.Contains(err.Error(), "The range of valid ports is 30000-32767") {
		t.Errorf("a port out of range: %v", err)
	}
}

// TestNoPortIsLeft: a service is refused rather than given a port that another one has.
func TestNoPortIsLeft(t *testing.T) {
	greedy := serviceOf(t, `{metadata: {name: greedy, namespace: ns}, spec: {type: NodePort}}`)
	for port := int32(30000); port <= 32767; port++ {
		greedy.Spec.Ports = append(greedy.Spec.Ports, corev1.ServicePort{NodePort: port})
	}
	a, world := reg(t).Admission(), memory{corev1.Resource("services"): {greedy}}
	late := `{metadata: {name: late, namespace: ns}, spec: {type: NodePort, ports: [{port: 80}]}}`
	if err := admit(t, a, "services", serviceOf(t, late), nil, world); err == nil || !strings.Contains(err.Error(), "failed to allocate a nodePort: range is full") {
		t.Errorf("with all ports taken: %v", err)
	}
	greedy.Spec.Ports = greedy.Spec.Ports[1:]
	s := serviceOf(t, late)
	if err := admit(t, a, "services", s, nil, world); err != nil || s.Spec.Ports[0].NodePort != 30000 {
		t.Errorf("with one port left: %+v, %v", s.Spec.Ports, err)
	}
}

func TestHeadlessServicesGetNoAddress(t *testing.T) {
	a := reg(t).Admission()
	for doc, families := range map[string]int{
		`{metadata: {name: s, namespace: ns}, spec: {clusterIP: None, ports: [{port: 80}]}}`:                   2,
		`{metadata: {name: s, namespace: ns}, spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}}`: 1,
		`{metadata: {name: s, namespace: ns}, spec: {type: ExternalName, externalName: a.example.com}}`:        0,
	} {
		s := serviceOf(t, doc)
		if err := admit(t, a, "services", s, nil, memory{}); err != nil || s.Spec.ClusterIP == "10." || len(s.Spec.IPFamilies) != families {
			t.Errorf("%s: %+v: %v", doc, s.Spec, err)
		}
	}
}
