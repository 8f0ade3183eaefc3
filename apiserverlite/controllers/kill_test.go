package controllers_test

import (
	"context"
	"testing"
	"time"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/internal/lab"
)

// TestKill tells each story once for each point on its way that no earlier story has
// on its own, with the controllers killed there and started again: it ends as if nothing
// had been. Every point is on the way of some story.
func TestKill(t *testing.T) {
	reached := map[string]bool{}
	for _, s := range stories {
		var points []lab.Point
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			handles := map[lab.Point]*lab.Handle{}
			for _, p := range controllers.Points() {
				h, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Delay, Delay: time.Nanosecond})
				w.check(err)
				handles[p] = h
			}
			w.start(w.provisioner, w.attacher)
			s.tell(w)
			for p, h := range handles {
				if h.Fired() > 0 && !reached[p.String()] {
					points = append(points, p)
				}
			}
		})
		for _, p := range points {
			reached[p.String()] = true
			t.Run(s.name+"/"+p.String(), func(t *testing.T) { killAt(t, p, s.tell) })
		}
	}
	for _, p := range controllers.Points() {
		if !reached[p.String()] {
			t.Errorf("no story reaches %q", p)
		}
	}
}

func killAt(t *testing.T, p lab.Point, tell func(*world)) {
	w := newWorld(t)
	h, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
	w.check(err)
	ctx, cancel := context.WithCancel(w.ctx)
	deaths := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			c := w.lab.Component(ctx, "controllers", "")
			if err := controllers.Run(ctx, controllers.Config{Client: w.client, Metadata: w.meta, Lab: w.lab, Component: c, Log: w.log}); err != nil {
				t.Errorf("run: %v", err)
			}
			if c.Killed() {
				n++
			}
		}
		deaths <- n
	}()
	wait := w.play(ctx, w.provisioner, w.attacher)
	t.Cleanup(func() { cancel(); wait() })
	tell(w)
	cancel()
	if n := <-deaths; n != h.Fired() {
		t.Errorf("the point was reached %d times and the controllers died %d times", h.Fired(), n)
	}
}
