package storage

import (
	"fmt"
	"strings"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type tree = btree.BTreeG[*Entry]

// state is everything at one revision. It never changes once it is published.
type state struct {
	revision Revision
	ids      map[schema.GroupResource]int // replaced, not changed, when a resource is new
	trees    []*tree
}

func (s *state) tree(gr schema.GroupResource) *tree {
	if i, ok := s.ids[gr]; ok {
		return s.trees[i]
	}
	return nil
}

// Snapshot is one resource at one revision. It stays as it is, whatever is written later.
type Snapshot struct {
	Revision Revision
	tree     *tree
}

// Get returns the current state of an object.
func (s *Store) Get(k Key) (*Entry, bool) {
	t := s.state.Load().tree(k.Resource)
	if t == nil {
		return nil, false
	}
	return t.Get(&Entry{path: k.Path()})
}

// Snapshot returns the current state of a resource.
func (s *Store) Snapshot(gr schema.GroupResource) Snapshot {
	st := s.state.Load()
	return Snapshot{st.revision, st.tree(gr)}
}

// SnapshotAt returns the state of a resource at an earlier revision, for as long as the
// ring remembers what has changed since; then it is ErrExpired. A revision in the future is ErrExpired too.
func (s *Store) SnapshotAt(gr schema.GroupResource, at Revision) (Snapshot, error) {
	cur, undo, err := s.since(gr, at)
	if err != nil {
		return Snapshot{}, err
	}
	if len(undo) == 0 {
		return Snapshot{at, cur}, nil
	}
	for i := len(undo) - 1; i >= 0; i-- {
		if ev := undo[i]; ev.Prev != nil {
			cur.ReplaceOrInsert(ev.Prev)
		} else {
			cur.Delete(ev.Entry)
		}
	}
	return Snapshot{at, cur}, nil
}

// since returns the current tree, a copy if there is something to undo, and the events after a revision.
func (s *Store) since(gr schema.GroupResource, at Revision) (*tree, []*Event, error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	st := s.state.Load()
	at = s.hub.normalize(at)
	if at > st.revision {
		return nil, nil, fmt.Errorf("%w: %d is ahead of %d", ErrExpired, at, st.revision)
	}
	r := s.hub.topic(st, gr)
	if r == nil {
		if at < s.hub.start {
			return nil, nil, fmt.Errorf("%w: %d, the oldest is %d", ErrExpired, at, s.hub.start)
		}
		return nil, nil, nil
	}
	evs, err := r.ring.since(at)
	if err != nil {
		return nil, nil, err
	}
	t := st.tree(gr)
	if len(evs) > 0 {
		t = t.Clone() // under mu: Clone marks both trees
	}
	return t, evs, nil
}

// Len is the number of objects in all namespaces.
func (s Snapshot) Len() int {
	if s.tree == nil {
		return 0
	}
	return s.tree.Len()
}

// Get returns an object of the snapshot.
func (s Snapshot) Get(namespace, name string) (*Entry, bool) {
	if s.tree == nil {
		return nil, false
	}
	return s.tree.Get(&Entry{path: Path(namespace, name)})
}

// Ascend calls each with the objects of a namespace (all for ""), by path, from the first
// path that is not less than start, until each returns false.
func (s Snapshot) Ascend(namespace, start string, each func(*Entry) bool) {
	if s.tree == nil {
		return
	}
	if namespace == "" {
		s.tree.AscendGreaterOrEqual(&Entry{path: start}, each)
		return
	}
	prefix := namespace + "/"
	s.tree.AscendGreaterOrEqual(&Entry{path: max(start, prefix)}, func(e *Entry) bool {
		return strings.HasPrefix(e.path, prefix) && each(e)
	})
}

// Path is the place of the object in the order of its resource.
func (e *Entry) Path() string { return e.path }

// Same tells whether nothing was written to the resource between two snapshots of it.
func (s Snapshot) Same(o Snapshot) bool { return s.tree == o.tree }
