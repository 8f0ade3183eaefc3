package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"drydock.dev/drydock/internal/lab"
)

func newParts(t *testing.T) *parts {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, append(known, before)...) })
	ctx, cancel := context.WithCancel(context.Background())
	p := &parts{lab: lab.New(lab.Options{}), log: zerolog.Nop(), ctx: ctx}
	t.Cleanup(func() { p.stopAll(); cancel() })
	return p
}

// lives is a part that reports the begin of each life and waits for its end.
func lives(begun chan<- *lab.Component) func(context.Context, *lab.Component) error {
	return func(ctx context.Context, c *lab.Component) error {
		begun <- c
		<-ctx.Done()
		return ctx.Err()
	}
}

func TestKilledPartStaysDownUntilStarted(t *testing.T) {
	p, begun := newParts(t), make(chan *lab.Component)
	p.add("kubelet", "n1", lives(begun))
	if err := p.start("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
	first := <-begun
	if err := p.kill("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
	if !first.Killed() || p.up()["kubelet/n1"] {
		t.Errorf("killed %v, up %v", first.Killed(), p.up())
	}
	if err := p.start("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
	if second := <-begun; second == first || second.Killed() {
		t.Error("the second life is the first")
	}
	if err := p.kill("kubelet/n9"); err == nil || !strings.Contains(err.Error(), "there are [kubelet/n1]") {
		t.Errorf("got %v", err)
	}
}

func TestPartThatEndsByItselfIsStartedAgain(t *testing.T) {
	p, begun := newParts(t), make(chan int, 10)
	n := 0
	p.add("driver", "", func(ctx context.Context, _ *lab.Component) error {
		n++
		begun <- n
		switch n {
		case 1:
			return errors.New("no luck")
		case 2:
			panic("worse")
		}
		<-ctx.Done()
		return nil
	})
	if err := p.start("driver"); err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 3; want++ {
		if got := <-begun; got != want {
			t.Fatalf("life %d, want %d", got, want)
		}
	}
}

func TestKillByARuleAtAPoint(t *testing.T) {
	p, begun := newParts(t), make(chan *lab.Component, 2)
	point := lab.Point{Component: "kubelet", Name: "between"}
	h, err := p.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: point.String(), Action: lab.Kill, Times: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.add("kubelet", "n1", func(ctx context.Context, c *lab.Component) error {
		begun <- c
		c.Point(point, "")
		<-ctx.Done()
		return nil
	})
	if err := p.start("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
	first := <-begun
	if err := h.WaitFired(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	<-first.Context().Done()
	if err := p.start("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
	if err := p.stop("kubelet/n1"); err != nil {
		t.Fatal(err)
	}
}
