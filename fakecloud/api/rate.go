package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"drydock.dev/drydock/fakecloud"
)

// rates counts requests for each token over the last hour, by the second.
type rates struct {
	mu     sync.Mutex
	tokens map[string]*window // guarded by mu
}

// window is a queue of the seconds in which something was asked.
type window struct {
	seconds []second // oldest first
	total   int
}

type second struct {
	unix  int64
	count int
}

const hour = int64(time.Hour / time.Second)

func newRates() *rates { return &rates{tokens: map[string]*window{}} }

// count notes a request, tells the caller in the headers what is left, and refuses
// the request if the limits are enforced and nothing is. A refused one does not count.
func (r *rates) count(token string, now time.Time, limit fakecloud.Rate, h http.Header) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.tokens[token]
	if w == nil {
		w = &window{}
		r.tokens[token] = w
	}
	t := now.Unix()
	for len(w.seconds) > 0 && w.seconds[0].unix <= t-hour {
		w.total -= w.seconds[0].count
		w.seconds = w.seconds[1:]
	}
	retry := int64(0)
	if limit.Enforce {
		if w.total >= limit.Hourly && len(w.seconds) > 0 {
			retry = w.seconds[0].unix + hour - t
		} else {
			retry = w.burst(t, limit.Burst)
		}
	}
	if retry == 0 {
		if n := len(w.seconds); n > 0 && w.seconds[n-1].unix >= t {
			w.seconds[n-1].count++
		} else {
			w.seconds = append(w.seconds, second{t, 1})
		}
		w.total++
	}
	reset := t + hour
	if len(w.seconds) > 0 {
		reset = w.seconds[0].unix + hour
	}
	h.Set("ratelimit-limit", strconv.Itoa(limit.Hourly))
	h.Set("ratelimit-remaining", strconv.Itoa(max(0, limit.Hourly-w.total)))
	h.Set("ratelimit-reset", strconv.FormatInt(reset, 10))
	if retry > 0 {
		return &statusError{status: http.StatusTooManyRequests, retry: int(retry)}
	}
	return nil
}

// burst returns how many seconds to wait until the last minute has room again.
func (w *window) burst(t int64, limit int) int64 {
	n := 0
	for i := len(w.seconds) - 1; i >= 0 && w.seconds[i].unix > t-60; i-- {
		if n += w.seconds[i].count; n >= limit {
			return w.seconds[i].unix + 60 - t
		}
	}
	return 0
}
