package control

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// The bounds of the wait before a failed key is tried again, doubling from the first to the last.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Queue holds keys to be worked on: each once, and never by two workers at a time.
type Queue[T comparable] = workqueue.TypedRateLimitingInterface[T]

// NewQueue returns a queue on the environment's clock. It has no name, hence no
// metrics and no goroutine that ticks for them.
// The environment shuts it down at the end, whether it was worked on or not.
func NewQueue[T comparable](e Env) Queue[T] {
	q := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[T]{Clock: e.Clock()})
	if e.Queues != nil {
		e.Queues.list = append(e.Queues.list, q.ShutDown)
	}
	return q
}

// Queues remembers the queues of one run. Its zero value is ready. It is filled while
// controllers are made, by one goroutine.
type Queues struct{ list []func() }

// ShutDown shuts all of them down.
func (q *Queues) ShutDown() {
	for _, f := range q.list {
		f()
	}
}

// Worker is what Work does with a key. A key whose worker returns an error comes back.
type Worker[T comparable] func(ctx context.Context, key T) error

// Work runs n workers on a queue until ctx ends, then shuts the queue down and waits for them.
func Work[T comparable](ctx context.Context, e Env, n int, q Queue[T], work Worker[T]) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for step(ctx, e, q, work) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	wg.Wait()
}

func step[T comparable](ctx context.Context, e Env, q Queue[T], work Worker[T]) bool {
	key, down := q.Get()
	if down {
		return false
	}
	defer q.Done(key) // also when a kill point ends this goroutine
	if ctx.Err() != nil {
		return false
	}
	err := work(ctx, key)
	if err == nil {
		q.Forget(key)
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	if !Routine(err) {
		e.Log.Warn().Err(err).Any("key", key).Msg("will be tried again")
	}
	q.AddRateLimited(key)
	return true
}

// Routine tells whether an error is part of normal work: somebody else wrote the
// object first, or took it away.
func Routine(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, context.Canceled)
}
