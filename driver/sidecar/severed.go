package sidecar

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// severed is a way to the API that ends with a context. The libraries make some
// calls on a context of their own, so as to finish what they began; a process that
// was killed could not.
type severed struct {
	ctx  context.Context
	next http.RoundTripper
}

func (s severed) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: the sidecar has ended: %w", r.Method, r.URL.Path, context.Cause(s.ctx))
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	done := func() { stop(); cancel(nil) }
	resp, err := s.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, done: done}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below, to close its idle connections.
func (s severed) WrappedRoundTripper() http.RoundTripper { return s.next }

// body ends the request's context when the response has been read.
type body struct {
	io.ReadCloser
	done func()
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
