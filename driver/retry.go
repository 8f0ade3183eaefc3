package driver

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// retrying repeats a request whose failure is likely to pass and whose repeat does
// no harm: any request that the cloud did not take (no connection, 429), and reads
// and deletes also after a 5xx or a lost answer. What it gives back is the last
// answer as it came. It also signs the requests.
type retrying struct {
	next  http.RoundTripper
	token string
	ops   ops
}

const (
	retries    = 4
	firstRetry = 25 * time.Millisecond
	longRetry  = 2 * time.Second // an answer that asks for a longer wait is given back
)

func (r *retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	pause := firstRetry
	for try := 0; ; try++ {
		resp, err := r.next.RoundTrip(req)
		wait, again := passing(req.Method, resp, err)
		if !again || try == retries || req.Context().Err() != nil {
			return resp, err
		}
		wait = max(wait, pause)
		pause *= 2
		if wait > longRetry {
			return resp, err
		}
		if req.Body != nil {
			body, e := req.GetBody()
			if e != nil {
				return resp, err
			}
			req.Body = body
		}
		e := r.ops.log.Warn().Str("request", req.Method+" "+req.URL.Path).Dur("wait", wait).Err(err)
		if resp != nil {
			e = e.Int("status", resp.StatusCode)
			io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
			resp.Body.Close()
		}
		e.Msg("the cloud did not answer well; asking again")
		t := r.ops.lab.Clock.NewTimer(wait)
		select {
		case <-t.C():
		case <-req.Context().Done():
			t.Stop()
			return nil, req.Context().Err()
		}
	}
}

// passing tells whether to repeat, and after how long at least.
func passing(method string, resp *http.Response, err error) (time.Duration, bool) {
	harmless := method == http.MethodGet || method == http.MethodDelete
	if err != nil {
		var op *net.OpError
		return 0, harmless || errors.As(err, &op) && op.Op == "dial"
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(after) * time.Second, true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, harmless
	}
	return 0, false
}
