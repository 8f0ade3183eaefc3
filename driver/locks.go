package driver

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
)

// locks lets one call at a time work on a volume. They do not wait: a second call is
// a repeat of one that still runs, and its caller does better to come back.
type locks struct {
	mu   sync.Mutex
	held map[string]bool // guarded by mu
}

func newLocks() *locks { return &locks{held: map[string]bool{}} }

// take locks id, of a kind of thing, until release is called. It returns an Aborted error when id is locked.
func (l *locks) take(kind, id string) (release func(), err error) {
	key := kind + "/" + id
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] {
		return nil, errorf(codes.Aborted, "An operation with the given %s %s already exists; it is still running, ask again", kind, id)
	}
	l.held[key] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, key)
	}, nil
}

// queues lets calls wait for their turn at a droplet: the cloud refuses a second
// action of a droplet while one is in progress, and waiting here is shorter than
// the sidecar's back-off.
type queues struct {
	mu    sync.Mutex
	turns map[DropletID]*turn // guarded by mu; those that somebody has or waits for
}

type turn struct {
	token chan struct{}
	users int // guarded by queues.mu
}

func newQueues() *queues { return &queues{turns: map[DropletID]*turn{}} }

// enter waits for the droplet's turn.
func (q *queues) enter(ctx context.Context, d DropletID) (leave func(), err error) {
	q.mu.Lock()
	t := q.turns[d]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		q.turns[d] = t
	}
	t.users++
	q.mu.Unlock()
	done := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(q.turns, d)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; done() }, nil
	case <-ctx.Done():
		done()
		return nil, errorf(codes.Aborted, "droplet %d is still busy with other volumes: %w; ask again", d, context.Cause(ctx))
	}
}
