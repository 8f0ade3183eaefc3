package storage

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WatchOptions narrow a watch. The zero value watches every object from now on.
type WatchOptions struct {
	// Namespace and Name select by key; empty is any.
	Namespace, Name string
	// Queue bounds the events that wait for the watcher; zero means 16384.
	Queue int
}

// Watch delivers the events of one resource. Its owner calls Stop.
type Watch struct {
	gr    schema.GroupResource
	scope string
	after Revision
	limit int
	store *Store

	ready chan struct{} // capacity 1

	mu    sync.Mutex
	queue []*Event // guarded by mu
	err   error    // guarded by mu: why it ended
}

// Watch delivers the events after a revision. ErrExpired says that they are no longer all known.
// A revision in the future delivers what comes after it.
func (s *Store) Watch(gr schema.GroupResource, after Revision, o WatchOptions) (*Watch, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	st := s.state.Load()
	after = h.normalize(after)
	w := s.newWatch(gr, after, o)
	if after < st.revision {
		if after < h.start {
			return nil, fmt.Errorf("%w: %d (%d)", ErrExpired, after, h.start)
		}
		if t := h.topic(st, gr); t != nil {
			past, err := t.ring.since(after)
			if err != nil {
				return nil, err
			}
			for _, ev := range past {
				if w.wants(ev) {
					w.queue = append(w.queue, ev)
				}
			}
			w.limit += len(w.queue) // the past does not count against the bound
		}
	}
	return w, s.start(w, st)
}

// WatchNow returns the current state of a resource and delivers everything after it.
func (s *Store) WatchNow(gr schema.GroupResource, o WatchOptions) (Snapshot, *Watch, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	st := s.state.Load()
	w := s.newWatch(gr, st.revision, o)
	return Snapshot{st.revision, st.tree(gr)}, w, s.start(w, st)
}

func (s *Store) newWatch(gr schema.GroupResource, after Revision, o WatchOptions) *Watch {
	w := &Watch{gr: gr, after: after, limit: o.Queue, store: s, ready: make(chan struct{}, 1)}
	if w.limit <= 0 {
		w.limit = 16384
	}
	switch {
	case o.Name != "":
		w.scope = Path(o.Namespace, o.Name)
	case o.Namespace != "":
		w.scope = o.Namespace + "/"
	}
	return w
}

// start registers w. The caller holds hub.mu.
func (s *Store) start(w *Watch, st *state) error {
	if s.hub.closed {
		return ErrClosed
	}
	if t := s.hub.topic(st, w.gr); t != nil {
		t.add(w)
	} else {
		s.hub.early[w] = struct{}{}
	}
	if len(w.queue) > 0 {
		poke(w.ready)
	}
	return nil
}

func (w *Watch) wants(ev *Event) bool {
	return w.scope == "" || w.scope == ev.Entry.path || w.scope == ev.Entry.Key.Namespace+"/"
}

// put queues an event. The caller holds hub.mu.
func (w *Watch) put(ev *Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || ev.Revision <= w.after {
		return
	}
	if len(w.queue) >= w.limit {
		w.queue, w.err = nil, ErrSlow
		poke(w.ready)
		return
	}
	w.queue = append(w.queue, ev)
	poke(w.ready)
}

func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	poke(w.ready)
}

// Ready receives when Take has something to return, and after Wake.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Wake lets Ready receive: who waits for more than events waits in one place.
func (w *Watch) Wake() { poke(w.ready) }

// Take returns the queued events without blocking. After the last of them it returns why the
// watch has ended: ErrSlow, in which case queued events were dropped, or ErrClosed.
func (w *Watch) Take() ([]*Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	w.queue = nil
	if len(q) > 0 {
		if w.err != nil {
			poke(w.ready)
		}
		return q, nil
	}
	return nil, w.err
}

// Next blocks until there are events, the watch has ended, or ctx has.
func (w *Watch) Next(ctx context.Context) ([]*Event, error) {
	for {
		if evs, err := w.Take(); len(evs) > 0 || err != nil {
			return evs, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Progress returns a revision up to which everything was taken; false while events wait.
func (w *Watch) Progress() (Revision, bool) {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.after, w.store.Revision()), len(w.queue) == 0 && w.err == nil
}

// Stop ends the watch and frees what it holds.
func (w *Watch) Stop() {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.early, w)
	if t := h.topic(w.store.state.Load(), w.gr); t != nil {
		t.remove(w)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = nil
	if w.err == nil {
		w.err = ErrClosed
	}
}
