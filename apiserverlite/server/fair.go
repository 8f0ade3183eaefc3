package server

import (
	"container/list"
	"context"
	"sync"
)

// fairQueue lets a bounded number of requests work at once. Those that wait are served flow by flow in
// turn, and within a flow in order: a flow with a thousand requests delays another flow's one
// by at most one of its own.
//
//	free > 0 and nobody waits --> works at once
//	else --> waits in its flow --> its flow's turn, a place is free --> works
//	     --> its flow is full --> refused
type fairQueue struct {
	most int // requests of one flow that may wait

	mu    sync.Mutex
	free  int                   // guarded by mu
	flows map[string]*list.List // guarded by mu: flows with waiting requests, each a list of chan struct{}
	turn  *list.List            // guarded by mu: names of those flows, next first
}

func newFairQueue(places, most int) *fairQueue {
	return &fairQueue{most: most, free: places, flows: map[string]*list.List{}, turn: list.New()}
}

// enter waits for a place. After nil the caller must leave.
func (q *fairQueue) enter(ctx context.Context, flow string) error {
	q.mu.Lock()
	if q.free > 0 { // somebody waits only while nothing is free
		q.free--
		q.mu.Unlock()
		return nil
	}
	f := q.flows[flow]
	if f == nil {
		f = list.New()
		q.flows[flow] = f
		q.turn.PushBack(flow)
	}
	if f.Len() >= q.most {
		q.mu.Unlock()
		return errBusy
	}
	mine := make(chan struct{})
	at := f.PushBack(mine)
	q.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	select {
	case <-mine: // the place was given meanwhile
		q.mu.Unlock()
		q.leave()
	default:
		f.Remove(at)
		if f.Len() == 0 {
			q.forget(flow)
		}
		q.mu.Unlock()
	}
	return context.Cause(ctx)
}

// leave gives the place to the flow whose turn it is.
func (q *fairQueue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.turn.Front()
	if next == nil {
		q.free++
		return
	}
	flow := next.Value.(string)
	f := q.flows[flow]
	first := f.Front()
	f.Remove(first)
	if f.Len() == 0 {
		q.forget(flow)
	} else {
		q.turn.MoveToBack(next)
	}
	close(first.Value.(chan struct{}))
}

// forget removes a flow without waiting requests. The caller holds mu.
func (q *fairQueue) forget(flow string) {
	delete(q.flows, flow)
	for e := q.turn.Front(); e != nil; e = e.Next() {
		if e.Value == flow {
			q.turn.Remove(e)
			return
		}
	}
}

// waiting is how many requests wait.
func (q *fairQueue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, f := range q.flows {
		n += f.Len()
	}
	return n
}
