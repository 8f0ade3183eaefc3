package server

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/apiserverlite/quota"
	"drydock.dev/drydock/apiserverlite/storage"
)

// turns lets the writes of a namespace pass one at a time. Its zero value is ready.
type turns struct {
	mu   sync.Mutex
	line map[string]*turn // guarded by mu
}

// turn is held by who has put a token into it. Waiting counts those who hold or want it, guarded by turns.mu.
type turn struct {
	token   chan struct{}
	waiting int
}

// take waits for the turn; done gives it back.
func (t *turns) take(ctx context.Context, namespace string) (done func(), err error) {
	t.mu.Lock()
	if t.line == nil {
		t.line = map[string]*turn{}
	}
	own := t.line[namespace]
	if own == nil {
		own = &turn{token: make(chan struct{}, 1)}
		t.line[namespace] = own
	}
	own.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.waiting--; own.waiting == 0 {
			delete(t.line, namespace)
		}
	}
	select {
	case own.token <- struct{}{}:
		return func() { <-own.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// quotaTurn waits until no other write that a quota limits is between its admission and its commit in the
// namespace: else two of them would both find room for the last one. Writes that no quota concerns do not wait.
func (w *writing) quotaTurn(ctx context.Context) (done func(), err error) {
	concerns := false
	if w.namespace != "" && w.sub == "" && !w.dryRun {
		w.s.store.Snapshot(quotas).Ascend(w.namespace, "", func(e *storage.Entry) bool {
			q, ok := e.Object.(*corev1.ResourceQuota)
			concerns = ok && quota.Concerns(q, w.res.Storage)
			return !concerns
		})
	}
	if !concerns {
		return func() {}, nil
	}
	return w.s.quotaTurns.take(ctx, w.namespace)
}

var quotas = corev1.Resource("resourcequotas")
