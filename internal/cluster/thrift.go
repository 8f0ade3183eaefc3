package cluster

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// thrift gives memory back to the machine when a burst of requests is over. Go would
// keep the room that garbage had (host.KeepHeadroom) for minutes: more than the data of an idle
// cluster. Collecting sooner all the time instead was measured: it costs half of the speed.
type thrift struct {
	next http.Handler
	give func()

	requests atomic.Int64 // since memory was last given back
	mu       sync.Mutex   // held while giving
	timer    *time.Timer
}

const (
	quietFor  = 2 * time.Second // without a request, a burst is over
	burstFrom = 50              // requests; the leases and health checks of an idle cluster are no burst
)

func newThrift(next http.Handler, give func()) *thrift {
	t := &thrift{next: next, give: give}
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
}

// close waits until nothing is being given back.
func (t *thrift) close() {
	t.timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests.Store(0)
}
