package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := 0
		h := newThrift(http.NotFoundHandler(), func() { given++ })
		defer h.close()
		ask := func(n int) {
			for range n {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
				time.Sleep(quietFor / 2)
			}
		}
		expect := func(what string, want int) {
			t.Helper()
			time.Sleep(2 * quietFor)
			synctest.Wait()
			if err := h.settle(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if given != want {
				t.Errorf("%s: memory was given back %d times, not %d", what, given, want)
			}
		}
		ask(burstFrom - 1)
		expect("too few requests", 0)
		ask(1)
		expect("enough of them, with a pause in between", 1)
		expect("nothing since", 1)
		ask(10 * burstFrom)
		expect("a long burst without a pause", 2)
		ask(burstFrom)
		begin := time.Now()
		if err := h.settle(t.Context()); err != nil || given != 3 || time.Since(begin) > quietFor {
			t.Errorf("a burst is settled: %v; memory was given back %d times, not 3, after %s", err, given, time.Since(begin))
		}
	})
}
