package volumemanager

import "sync"

// touched collects what has changed since it was last looked at, so that a look costs
// what changed and not what there is. It is safe for concurrent use.
//
// Who looks takes first and reads the state after: a change that comes between is
// either seen or touched anew.
type touched[K comparable] struct {
	mu  sync.Mutex
	all bool           // guarded by mu
	set map[K]struct{} // guarded by mu
}

// newTouched begins with everything touched.
func newTouched[K comparable]() *touched[K] { return &touched[K]{all: true, set: map[K]struct{}{}} }

func (t *touched[K]) add(keys ...K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		t.set[k] = struct{}{}
	}
}

func (t *touched[K]) everything() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = true
}

// take returns what was touched and forgets it; all says that everything was.
func (t *touched[K]) take() (set map[K]struct{}, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set, all = t.set, t.all
	t.set, t.all = map[K]struct{}{}, false
	return set, all
}
