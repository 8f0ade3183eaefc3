package cluster

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects"
	"drydock.dev/drydock/nodesim"
)

// machine is a node as a machine: its power, its line to the API server, and the programs
// of others that run on it. What it runs of ours are parts of the cluster.
//
//	on --power-off--> off --power-on--> on, with nothing mounted and the disk as it was
type machine struct {
	c    *Cluster
	name string
	line *lab.Line
	time *lab.Skewed

	op sync.Mutex // held by an operation: they come one after another

	mu      sync.Mutex
	off     bool
	boots   int
	down    labobjects.Kubelet // guarded by mu: how the kubelet was ended that is to stay down
	kubelet *nodesim.Node      // guarded by mu: nil while none runs
	slow    *lab.Handle        // guarded by mu: nil while the API answers at its own pace
	guests  map[*stay]struct{} // guarded by mu
	left    chan struct{}      // guarded by mu: closes when a guest has left
}

func (c *Cluster) newMachine(name string) *machine {
	return &machine{c: c, name: name, line: c.line("kubelet/" + name), time: lab.Skew(c.Lab.Clock), guests: map[*stay]struct{}{}, left: make(chan struct{})}
}

// Become brings the node to a state and returns when it is so. What is so already stays so.
func (m *machine) Become(ctx context.Context, want labobjects.State) error {
	if err := m.slowDown(want.Delay); err != nil {
		return err
	}
	m.time.Set(want.Skew)
	if want.Cut {
		m.line.Cut()
	} else {
		m.line.Heal()
	}
	if want.Off {
		if err := m.powerOff(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	was := m.down
	m.down = want.Kubelet
	m.mu.Unlock()
	kubelet := "kubelet/" + m.name
	switch {
	case m.isOff():
	case want.Kubelet == labobjects.Stopped && was == labobjects.Running:
		if err := m.c.parts.stop(kubelet); err != nil {
			return err
		}
	case want.Kubelet == labobjects.Killed && was == labobjects.Running:
		if err := m.c.parts.kill(kubelet); err != nil {
			return err
		}
	case want.Kubelet == labobjects.Running && was != labobjects.Running:
		if err := m.c.parts.start(kubelet); err != nil {
			return err
		}
	}
	if want.Off {
		return nil
	}
	return m.powerOn(ctx)
}

// restartKubelet ends the kubelet in order and starts it.
func (m *machine) restartKubelet() error {
	return errors.Join(m.c.parts.stop("kubelet/"+m.name), m.startKubelet())
}

// startKubelet starts a kubelet that is down for no reason.
func (m *machine) startKubelet() error {
	if m.isOff() {
		return errOff
	}
	if m.staysDown() {
		return nil
	}
	return m.c.parts.start("kubelet/" + m.name)
}

// slowDown makes each of the kubelet's requests take longer; zero ends it.
func (m *machine) slowDown(delay time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow != nil {
		if m.slow.Rule.Delay == delay {
			return nil
		}
		m.slow.Remove()
		m.slow = nil
	}
	if delay == 0 {
		return nil
	}
	var err error
	m.slow, err = m.c.Lab.Faults.Add(lab.Rule{Kind: lab.KindAPI, Component: "kubelet", Node: m.name, Action: lab.Delay, Delay: delay})
	return err
}

func (m *machine) isOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
}

// staysDown tells whether the kubelet is to stay down.
func (m *machine) staysDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down != labobjects.Running
}

// impaired tells whether the node cannot be expected to be ready.
func (m *machine) impaired() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off || m.down != labobjects.Running || m.slow != nil || m.line.IsCut()
}

// has tells whether a part of the node is to run.
func (m *machine) has(part string) bool {
	return !m.isOff() && (part != "kubelet/"+m.name || !m.staysDown())
}

// parts of this node in their start order.
func (m *machine) parts() []string {
	return []string{"kubelet/" + m.name, "proxy/" + m.name, "driver/" + m.name, "registrar/" + m.name}
}

// boot names the node's present boot within this process.
func (m *machine) boot() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strconv.Itoa(m.boots)
}

// lives sets the kubelet that runs, or nil.
func (m *machine) lives(n *nodesim.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kubelet = n
}

// MachineStatus is a node as the laboratory sees it.
type MachineStatus struct {
	Name        string   `json:"name"`
	Power       string   `json:"power"`             // on or off
	Kubelet     string   `json:"kubelet"`           // running or stopped
	Network     string   `json:"network"`           // connected, slow or partitioned
	Delay       string   `json:"delay,omitempty"`   // of each request, when slow
	Clock       string   `json:"clock,omitempty"`   // by how much it is wrong, if it is
	Guests      []string `json:"guests,omitempty"`  // programs that "drydock node exec" runs there
	Directory   string   `json:"kubeletDirectory"`  // as this machine sees it
	Devices     string   `json:"devices,omitempty"` // loop or sim
	MountedFrom int      `json:"process,omitempty"` // the process in whose mount namespace the mounts are
}

func (m *machine) status() MachineStatus {
	up := m.c.parts.up()["kubelet/"+m.name]
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MachineStatus{Name: m.name, Power: "on", Kubelet: "stopped", Network: "connected", Directory: m.c.Layout.Kubelet(m.name), Devices: string(m.c.Mode)}
	if m.c.Mode == host.Loop {
		s.MountedFrom = m.c.pid()
	}
	if m.off {
		s.Power = "off"
	}
	if up {
		s.Kubelet = "running"
	}
	if m.slow != nil {
		s.Network, s.Delay = "slow", m.slow.Rule.Delay.String()
	}
	if m.line.IsCut() {
		s.Network = "partitioned"
	}
	if d := m.time.By(); d != 0 {
		s.Clock = d.String()
	}
	for g := range m.guests {
		s.Guests = append(s.Guests, g.what)
	}
	return s
}
