package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// thrift has memory given back to the machine when a burst of requests is over (host.GiveBack, where it is worth it). Go would
// keep the room that garbage had (host.KeepHeadroom) for minutes: more than the data of an idle
// cluster. Collecting sooner all the time instead was measured: it costs half of the speed.
type thrift struct {
	next http.Handler
	give func()

	requests atomic.Int64  // since memory was last given back
	mu       sync.Mutex    // held while giving
	given    chan struct{} // guarded by mu: closes when memory is given back the next time
	timer    *time.Timer
}

const (
	quietFor  = 2 * time.Second // without a request, a burst is over
	burstFrom = 50              // requests; the leases and health checks of an idle cluster are no burst
)

func newThrift(next http.Handler, give func()) *thrift {
	t := &thrift{next: next, give: give, given: make(chan struct{})}
	t.timer = time.AfterFunc(quietFor, t.rest)
	return t
}

func (t *thrift) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.requests.Add(1)
	t.timer.Reset(quietFor)
	t.next.ServeHTTP(w, r)
}

func (t *thrift) rest() {
	if t.requests.Load() < burstFrom {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests.Store(0)
	t.give()
	close(t.given)
	t.given = make(chan struct{})
}

// settle waits until the burst that may be going on is over and its memory given back.
func (t *thrift) settle(ctx context.Context) error {
	for {
		t.mu.Lock()
		burst, given := t.requests.Load() >= burstFrom, t.given
		t.mu.Unlock()
		if !burst {
			return nil
		}
		select {
		case <-given:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of a burst of requests: %w", context.Cause(ctx))
		}
	}
}

// close waits until nothing is being given back.
func (t *thrift) close() {
	t.timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests.Store(0)
}
