package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	serviceutil "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/ptr"
)

var serviceResource = corev1.Resource("services")

// The addresses and ports that services get.
var serviceNetwork = netip.MustParsePrefix("10.96.0.0/12")

const firstNodePort, lastNodePort = 30000, 32767

// addresses gives a service its cluster IP and node ports, or refuses those that it brings. Upstream does this before validation
// as well, and refuses for no other reason if it does.
func addresses(_ context.Context, a Attributes) error {
	s, err := internal[core.Service](a.Obj)
	if err != nil {
		return err
	}
	var old *core.Service
	if a.Old != nil {
		if old, err = internal[core.Service](a.Old.DeepCopyObject()); err != nil {
			return err
		}
		keepAddresses(s, old)
	}
	pairAddresses(s, old)
	g := giver{a: a, service: s, old: old}
	if err := g.give(); err != nil {
		return err
	}
	external(s, a.Obj)
	return nil
}

// giver is one service that is to get its addresses.
type giver struct {
	a            Attributes
	service, old *core.Service
	ips          sets.Set[string] // of other services
	ports        sets.Set[int32]
	given        []int32
}

func (g *giver) give() error {
	if errs := giveFamilies(g.service, g.old); len(errs) > 0 {
		return g.invalid(errs)
	}
	g.ips, g.ports = sets.New[string](), sets.New[int32]()
	for _, o := range g.a.Reader.List(serviceResource, "") {
		s, ok := o.(*corev1.Service)
		if !ok || s.Namespace == g.a.Namespace && s.Name == g.a.Name {
			continue
		}
		g.ips.Insert(s.Spec.ClusterIPs...)
		for _, p := range s.Spec.Ports {
			g.ports.Insert(p.NodePort)
		}
		g.ports.Insert(s.Spec.HealthCheckNodePort)
	}
	if err := g.giveIP(); err != nil {
		return err
	}
	return g.givePorts()
}

func (g *giver) invalid(errs field.ErrorList) error {
	return apierrors.NewInvalid(core.Kind("Service"), g.service.Name, errs)
}

// giveIP fills in the cluster IP of a service that is new or gets one by its new type.
func (g *giver) giveIP() error {
	s := &g.service.Spec
	if !hasAddress(g.service) || g.old != nil && hasAddress(g.old) || len(s.ClusterIPs) > 0 && s.ClusterIPs[0] == core.ClusterIPNone {
		return nil
	}
	if len(s.ClusterIPs) == 0 {
		s.ClusterIPs = []string{""}
	}
	if s.ClusterIPs[0] == "" {
		s.ClusterIPs[0] = g.freeIP()
		s.ClusterIP = s.ClusterIPs[0]
		return nil
	}
	ip, err := netip.ParseAddr(s.ClusterIPs[0])
	var why string
	switch {
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("failed to parse service IP %q", s.ClusterIPs[0]))
	case !serviceNetwork.Contains(ip):
		why = fmt.Sprintf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, serviceNetwork)
	case g.ips.Has(ip.String()) && !g.a.DryRun:
		why = "provided IP is already allocated"
	default:
		return nil
	}
	return g.invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), s.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %s", ip, why))})
}

// freeIP is any that no other service has. A dry run takes none.
func (g *giver) freeIP() string {
	if g.a.DryRun {
		return serviceNetwork.Addr().String()
	}
	for {
		n := rand.Uint32N(1<<20-512) + 256
		ip := netip.AddrFrom4([4]byte{10, byte(96 + n>>16), byte(n >> 8), byte(n)}).String()
		if !g.ips.Has(ip) {
			return ip
		}
	}
}

func (g *giver) givePorts() error {
	s := &g.service.Spec
	if hasNodePorts(g.service) {
		give := g.portsOfNew
		if g.old != nil {
			give = g.portsOfUpdate
		}
		if err := give(); err != nil {
			return err
		}
	}
	if !serviceutil.NeedsHealthCheck(g.service) || g.old != nil && serviceutil.NeedsHealthCheck(g.old) {
		return nil
	}
	if s.HealthCheckNodePort == 0 {
		var err error
		if s.HealthCheckNodePort, err = g.freePort(); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", s.HealthCheckNodePort, err))
		}
		return nil
	}
	if err := g.take(s.HealthCheckNodePort); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", s.HealthCheckNodePort, err))
	}
	return nil
}

// wantsNodePorts is false for a load balancer that reaches pods without them.
func (g *giver) wantsNodePorts() bool {
	return g.service.Spec.Type != core.ServiceTypeLoadBalancer || ptr.Deref(g.service.Spec.AllocateLoadBalancerNodePorts, true)
}

// portsOfNew gives the same node port to ports of one number that differ in protocol.
func (g *giver) portsOfNew() error {
	ports, byPort := g.service.Spec.Ports, map[int32]int32{}
	for i := range ports {
		p := &ports[i]
		if p.NodePort == 0 && !g.wantsNodePorts() {
			continue
		}
		got := byPort[p.Port]
		if got == 0 {
			for _, q := range ports {
				if got == 0 && q.Port == p.Port {
					got = q.NodePort
				}
			}
			if got == 0 {
				var err error
				if got, err = g.freePort(); err != nil {
					return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
				}
			} else if err := g.takePort(i, got); err != nil {
				return err
			}
			byPort[p.Port], p.NodePort = got, got
			continue
		}
		switch p.NodePort {
		case 0:
			p.NodePort = got
		case got:
		default:
			if err := g.takePort(i, p.NodePort); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *giver) portsOfUpdate() error {
	type port struct {
		protocol core.Protocol
		number   int32
	}
	had, taken, all := nodePorts(g.old), sets.New[int32](), sets.New[port]()
	for i := range g.service.Spec.Ports {
		p := &g.service.Spec.Ports[i]
		switch {
		case p.NodePort == 0 && !g.wantsNodePorts():
			continue
		case p.NodePort == 0:
			var err error
			if p.NodePort, err = g.freePort(); err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
			}
		case !had.Has(p.NodePort) && !taken.Has(p.NodePort):
			if err := g.takePort(i, p.NodePort); err != nil {
				return err
			}
			taken.Insert(p.NodePort)
		}
		this := port{p.Protocol, p.NodePort}
		if all.Has(this) {
			return fmt.Errorf("duplicate nodePort: {%v %v}", this.protocol, this.number)
		}
		all.Insert(this)
	}
	return nil
}

func (g *giver) takePort(i int, port int32) error {
	err := g.take(port)
	if err == nil {
		return nil
	}
	return g.invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), port, err.Error())})
}

func (g *giver) take(port int32) error {
	if !g.a.DryRun && (port < firstNodePort || port > lastNodePort) {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", firstNodePort, lastNodePort)
	}
	own := g.old != nil && (nodePorts(g.old).Has(port) || g.old.Spec.HealthCheckNodePort == port)
	if g.ports.Has(port) || own {
		return fmt.Errorf("provided port is already allocated")
	}
	g.ports.Insert(port)
	g.given = append(g.given, port)
	return nil
}

// freePort is any that no other service has. A dry run gives ports that nobody can have, as upstream's does.
func (g *giver) freePort() (int32, error) {
	port := int32(lastNodePort + 1)
	if !g.a.DryRun {
		port = firstNodePort + rand.Int32N(lastNodePort-firstNodePort)
	} else if n := len(g.given); n > 0 {
		port = g.given[n-1]
	}
	for tried := 0; tried <= lastNodePort-firstNodePort; tried++ {
		port++
		if port > lastNodePort && !g.a.DryRun {
			port = firstNodePort
		}
		if !g.ports.Has(port) {
			g.ports.Insert(port)
			g.given = append(g.given, port)
			return port, nil
		}
	}
	return 0, errPortsTaken
}

// errPortsTaken has upstream's words.
var errPortsTaken = errors.New("range is full")
