package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// laboratory acts on the objects of the group lab.drydock.dev. It is no part: nothing kills
// it, and it has a line of its own that no rule cuts.
type laboratory struct {
	client  *v1alpha1.Client
	control *labobjects.Controller
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// beginLaboratory brings about what stored objects say, before anything runs that they are about.
func (c *Cluster) beginLaboratory(ctx context.Context) error {
	cfg := &rest.Config{Host: c.URL(), BearerToken: c.auth.issue(lab.Laboratory), UserAgent: "drydock-" + lab.Laboratory, QPS: -1, Burst: -1, Transport: c.http.inside}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if c.laboratory.client, err = v1alpha1.NewClient(cfg); err != nil {
		return err
	}
	c.laboratory.control, err = labobjects.Begin(ctx, labobjects.Config{
		Client: c.laboratory.client, Kube: kube, Dynamic: dyn, Lab: c.Lab, House: house{c}, Points: Points(), Log: c.boxLog("lab")})
	if err != nil {
		return fmt.Errorf("open the laboratory: %w", err)
	}
	return nil
}

func (l *laboratory) run(ctx context.Context) {
	ctx, l.stop = context.WithCancel(ctx)
	l.wg.Go(func() { l.control.Run(ctx) })
}

// end stops it. What it broke stays as it is, and is so again after the next start.
func (l *laboratory) end() {
	if l.stop != nil {
		l.stop()
		l.wg.Wait()
	}
}

// FaultsInForce names the faults that are there, as "fault/NAME" and "nodefault/NAME".
func (c *Cluster) FaultsInForce(ctx context.Context) ([]string, error) {
	return labobjects.Names(ctx, c.laboratory.client)
}

// has tells whether a part is to run when the cluster starts.
func (c *Cluster) has(part string) bool {
	_, node, _ := strings.Cut(part, "/")
	m := c.machines[node]
	return m == nil || m.has(part)
}

// house is the cluster as the laboratory's objects act on it.
type house struct{ c *Cluster }

func (h house) Nodes() []string { return h.c.NodeNames() }

func (h house) Become(ctx context.Context, node string, want labobjects.State) error {
	m, err := h.c.machine(node)
	if err != nil {
		return err
	}
	return m.Become(ctx, want)
}

func (h house) RestartKubelet(_ context.Context, node string) error {
	m, err := h.c.machine(node)
	if err != nil {
		return err
	}
	return m.restartKubelet()
}

func (h house) Reboot(ctx context.Context, node string) error {
	m, err := h.c.machine(node)
	if err != nil {
		return err
	}
	if err := m.powerOff(ctx); err != nil {
		return err
	}
	return m.powerOn(ctx)
}

func (h house) Start(component string) error {
	if !h.c.has(component) {
		return nil
	}
	return h.c.parts.start(component)
}

func (h house) Offset() time.Duration { return h.c.clock().Offset() }

func (h house) Advance(d time.Duration) error { return h.c.Advance(d) }

func (c *Cluster) clock() *lab.Clock { return c.Lab.Clock.(*lab.Clock) }

// Advance moves the cluster's clock forward, for good: where it is was written down before.
func (c *Cluster) Advance(d time.Duration) error {
	c.timeMu.Lock()
	defer c.timeMu.Unlock()
	if d <= 0 {
		return fmt.Errorf("advance the clock by %s: it never goes back", d)
	}
	if err := writeFile(c.Layout.Clock(), []byte((c.clock().Offset()+d).String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("advance the clock: %w", err)
	}
	c.clock().Advance(d)
	return nil
}

// readOffset is how far the clock of that state directory was advanced.
func readOffset(l Layout) (time.Duration, error) {
	b, err := os.ReadFile(l.Clock())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how far the clock was advanced: %w", err)
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil || d < 0 {
		return 0, fmt.Errorf("file %s should say how far the clock was advanced, such as 6m0s, and says %q; without it the clock is at real time again, which may be before what is stored", l.Clock(), strings.TrimSpace(string(b)))
	}
	return d, nil
}
