package volumeplugin

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// WithTimeout is context.WithTimeout on the lab's clock: advancing the clock past
// the deadline ends the context at once, with DeadlineExceeded. The deadline that
// is passed on to a peer is in real time.
func WithTimeout(parent context.Context, c clock.WithDelayedExecution, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithTimeout(parent, d)
	ctx := &deadline{Context: inner, done: make(chan struct{})}
	stopInner := context.AfterFunc(inner, func() { ctx.end(inner.Err()) })
	timer := c.AfterFunc(d, func() { ctx.end(context.DeadlineExceeded) })
	return ctx, func() {
		timer.Stop()
		stopInner()
		ctx.end(context.Canceled)
		cancel()
	}
}

type deadline struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	err  error // guarded by mu
}

func (d *deadline) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
		close(d.done)
	}
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
