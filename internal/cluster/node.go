package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim"
)

// machine is a node as a machine: its power, its line to the API server, and the programs
// of others that run on it. What it runs of ours are parts of the cluster.
//
//	on --power-off--> off --power-on--> on, with nothing mounted and the disk as it was
type machine struct {
	c    *Cluster
	name string
	line *line

	op sync.Mutex // held by an operation: they come one after another

	mu      sync.Mutex
	off     bool
	boots   int
	kubelet *nodesim.Node      // guarded by mu: nil while none runs
	slow    *lab.Handle        // guarded by mu: nil while the API answers at its own pace
	guests  map[*stay]struct{} // guarded by mu
	left    chan struct{}      // guarded by mu: closes when a guest has left
}

func (c *Cluster) newMachine(name string) *machine {
	return &machine{c: c, name: name, line: newLine(c.http.inside), guests: map[*stay]struct{}{}, left: make(chan struct{})}
}

// Operation is what can be done to a node.
type Operation string

// The operations. Each may be repeated; what is so already stays so.
const (
	StopKubelet    Operation = "stop-kubelet"    // in order; pods' volumes stay mounted
	KillKubelet    Operation = "kill-kubelet"    // at once, as kill -9 does
	StartKubelet   Operation = "start-kubelet"   // it finds what the last one left
	RestartKubelet Operation = "restart-kubelet" // stop, then start
	PowerOff       Operation = "power-off"       // mounts and devices gone, files kept, unsynced data lost
	PowerOn        Operation = "power-on"        // a boot
	Reboot         Operation = "reboot"          // power-off, then power-on
	Partition      Operation = "partition"       // the kubelet does not reach the API server
	Slow           Operation = "slow"            // each of the kubelet's requests takes longer by a delay
	Heal           Operation = "heal"            // ends partition and slow
)

// Operations lists them.
func Operations() []Operation {
	return []Operation{StopKubelet, KillKubelet, StartKubelet, RestartKubelet, PowerOff, PowerOn, Reboot, Partition, Slow, Heal}
}

// defaultSlowness is the delay of Slow when none is given.
const defaultSlowness = time.Second

var (
	errNoNode      = errors.New("no such node")
	errNoOperation = errors.New("no such operation")
	errOff         = errors.New("the node is powered off")
)

// machine finds a node.
func (c *Cluster) machine(name string) (*machine, error) {
	if m := c.machines[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("node %q: %w; there are %v", name, errNoNode, c.NodeNames())
}

// Operate does something to a node and returns when it is done. Delay is of Slow; zero is a second.
func (c *Cluster) Operate(ctx context.Context, node string, op Operation, delay time.Duration) error {
	m, err := c.machine(node)
	if err != nil {
		return err
	}
	m.op.Lock()
	defer m.op.Unlock()
	if err := m.operate(ctx, op, delay); err != nil {
		return fmt.Errorf("%s of node %s: %w", op, node, err)
	}
	c.log.Info().Str("node", node).Str("operation", string(op)).Msg("done to a node")
	return nil
}

func (m *machine) operate(ctx context.Context, op Operation, delay time.Duration) error {
	kubelet := "kubelet/" + m.name
	switch op {
	case StopKubelet:
		return m.c.parts.stop(kubelet)
	case KillKubelet:
		return m.c.parts.kill(kubelet)
	case StartKubelet:
		return m.startKubelet()
	case RestartKubelet:
		return errors.Join(m.c.parts.stop(kubelet), m.startKubelet())
	case PowerOff:
		return m.powerOff(ctx)
	case PowerOn:
		return m.powerOn(ctx)
	case Reboot:
		if err := m.powerOff(ctx); err != nil {
			return err
		}
		return m.powerOn(ctx)
	case Partition:
		m.line.cut()
		return nil
	case Slow:
		return m.slowDown(delay)
	case Heal:
		m.line.heal()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.slow != nil {
			m.slow.Remove()
			m.slow = nil
		}
		return nil
	}
	return fmt.Errorf("%w; there are %v", errNoOperation, Operations())
}

func (m *machine) startKubelet() error {
	if m.isOff() {
		return errOff
	}
	return m.c.parts.start("kubelet/" + m.name)
}

func (m *machine) slowDown(delay time.Duration) error {
	if delay == 0 {
		delay = defaultSlowness
	}
	h, err := m.c.Lab.Faults.Add(lab.Rule{Kind: lab.KindAPI, Component: "kubelet", Node: m.name, Action: lab.Delay, Delay: delay})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slow != nil {
		m.slow.Remove()
	}
	m.slow = h
	return nil
}

func (m *machine) isOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
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
	if m.line.isCut() {
		s.Network = "partitioned"
	}
	for g := range m.guests {
		s.Guests = append(s.Guests, g.what)
	}
	return s
}

// line is a node's line to the API server. While it is cut, nothing gets through: what is
// under way breaks off, and new requests wait until it is healed or their callers give up.
type line struct {
	next http.RoundTripper

	mu     sync.Mutex
	healed chan struct{}                // guarded by mu: closes when the line is healed; nil while it is whole
	under  map[*context.CancelFunc]bool // guarded by mu: requests under way
}

func newLine(next http.RoundTripper) *line {
	return &line{next: next, under: map[*context.CancelFunc]bool{}}
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healed == nil {
		l.healed = make(chan struct{})
	}
	for cancel := range l.under {
		(*cancel)()
	}
}

func (l *line) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healed != nil {
		close(l.healed)
		l.healed = nil
	}
}

func (l *line) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.healed != nil
}

// RoundTrip is http.RoundTripper's.
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	for {
		l.mu.Lock()
		healed := l.healed
		if healed == nil {
			l.under[&cancel] = true
			l.mu.Unlock()
			break
		}
		l.mu.Unlock()
		select {
		case <-healed:
		case <-ctx.Done():
			cancel()
			return nil, req.Context().Err()
		}
	}
	over := func() {
		l.mu.Lock()
		delete(l.under, &cancel)
		l.mu.Unlock()
		cancel()
	}
	resp, err := l.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		over()
		return nil, err
	}
	resp.Body = &onClose{resp.Body, over}
	return resp, nil
}
