package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Op is one change of one object.
type Op struct {
	Key Key
	// Object is the new object, or for Delete the last one. The store takes it over and sets its
	// resourceVersion. It has apiVersion and kind set.
	Object runtime.Object
	// Expect is the revision that the current object must have; zero means that there must be none.
	Expect Revision
	Delete bool
}

// ConflictError says that an Op met another object than it expected.
type ConflictError struct {
	Key        Key
	Want, Have Revision // zero: no object
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("write %s: expected revision %d, found %d", e.Key, e.Want, e.Have)
}

// maxObject bounds an object's row, as etcd bounds requests by default: without it patch upon patch makes an object
// larger than any request could.
const maxObject = 3 << 19

// request is one Write or one change of meta on its way to the writer.
type request struct {
	ops  []pendingOp
	meta map[string][]byte
	done chan error // buffered
}

type pendingOp struct {
	Op
	row   row
	entry *Entry // made by the caller, its revision is set by the writer
}

// Write applies all ops or none, each on its own key. It returns the entries that they
// made, for a Delete the entry that its event carries. An op that changes nothing costs
// no revision: its entry is the current one. Errors: *ConflictError, ErrUnavailable, ErrTooLarge,
// ErrClosed, or an object that cannot be encoded. The context only bounds the wait
// before the writer has taken the request; after that the answer is always definite.
func (s *Store) Write(ctx context.Context, ops ...Op) ([]*Entry, error) {
	out := make([]*Entry, len(ops))
	req := &request{ops: make([]pendingOp, 0, len(ops)), done: make(chan error, 1)}
	for i, op := range ops {
		p, err := s.prepare(op)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", op.Key, err)
		}
		for _, other := range req.ops {
			if other.Key == op.Key {
				return nil, fmt.Errorf("write %s: the key occurs twice", op.Key)
			}
		}
		out[i] = p.entry
		if len(ops) == 1 && !op.Delete && op.Expect != 0 {
			if cur, ok := s.Get(op.Key); ok && cur.Revision == op.Expect && cur.size == p.entry.size && cur.sum == p.entry.sum {
				return []*Entry{cur}, nil
			}
		}
		req.ops = append(req.ops, p)
	}
	if err := s.send(ctx, req); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) prepare(op Op) (pendingOp, error) {
	if op.Object == nil {
		return pendingOp{}, errors.New("no object")
	}
	r, err := s.codec.encode(op.Object)
	if err != nil {
		return pendingOp{}, err
	}
	if len(r.data) > maxObject && !op.Delete {
		return pendingOp{}, fmt.Errorf("%w: it takes %d bytes, the limit is %d", ErrTooLarge, len(r.data), maxObject)
	}
	e := &Entry{Key: op.Key, Object: op.Object, path: op.Key.Path(), sum: s.codec.sum(r.data), size: len(r.data)}
	return pendingOp{Op: op, row: r, entry: e}, nil
}

func (s *Store) send(ctx context.Context, req *request) error {
	s.closeMu.RLock()
	if s.closed {
		s.closeMu.RUnlock()
		return ErrClosed
	}
	select {
	case s.queue <- req:
		s.closeMu.RUnlock()
	case <-ctx.Done():
		s.closeMu.RUnlock()
		return context.Cause(ctx)
	}
	return <-req.done
}

// SetMeta keeps a small value that is not an API object, under a name of the caller's.
func (s *Store) SetMeta(ctx context.Context, name string, value []byte) error {
	err := s.send(ctx, &request{meta: map[string][]byte{metaPrefix + name: value}, done: make(chan error, 1)})
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

// keep is called by the writer with what it has committed.
func (s *Store) keep(meta map[string][]byte) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	for k, v := range meta {
		s.meta[strings.TrimPrefix(k, metaPrefix)] = v
	}
}

// Meta returns what SetMeta kept. It must not be changed.
func (s *Store) Meta(name string) ([]byte, bool) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	v, ok := s.meta[name]
	return v, ok
}

// metaPrefix keeps callers' names apart from the store's own.
const (
	metaPrefix    = "x/"
	metaInventory = "inventory"
)
