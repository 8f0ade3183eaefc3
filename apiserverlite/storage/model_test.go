package storage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// model is what a store must be: a plain map, and the events since the beginning.
type model struct {
	t       *rapid.T
	cfg     Config
	s       *Store
	objects map[string]modelObject // by path
	history []modelEvent
	last    Revision
	watch   *Watch
	watched int // events of history that the watch has delivered
}

type modelObject struct {
	rev   Revision
	value string
}

type modelEvent struct {
	typ   EventType
	path  string
	rev   Revision
	value string
	prev  Revision
}

func (m *model) open() {
	s, err := Open(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.s = s
	if s.Revision() < m.last {
		m.t.Fatalf("revision went back from %d to %d", m.last, s.Revision())
	}
	// A watch from the last revision goes on over a clean restart.
	if m.watch, err = s.Watch(configmaps, m.last, WatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
	m.watched = len(m.history)
}

func (m *model) write(ops ...Op) {
	var want error
	for _, op := range ops {
		if m.objects[op.Key.Path()].rev != op.Expect || op.Delete && op.Expect == 0 {
			want = &ConflictError{}
		}
	}
	values := make([]string, len(ops))
	for i, op := range ops {
		values[i] = op.Object.(*corev1.ConfigMap).Data["v"]
	}
	if len(ops) == 1 && want == nil && !ops[0].Delete && ops[0].Expect != 0 && m.objects[ops[0].Key.Path()].value == values[0] {
		es, err := m.s.Write(context.Background(), ops...)
		if err != nil || es[0].Revision != ops[0].Expect {
			m.t.Fatalf("a write without effect gave %v, %v", es, err)
		}
		return
	}
	es, err := m.s.Write(context.Background(), ops...)
	var conflict *ConflictError
	if want != nil {
		if !errors.As(err, &conflict) {
			m.t.Fatalf("want a conflict, got %v", err)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	for i, op := range ops {
		path := op.Key.Path()
		if es[i].Revision <= m.last {
			m.t.Fatalf("revision %d after %d", es[i].Revision, m.last)
		}
		m.last = es[i].Revision
		old, existed := m.objects[path]
		ev := modelEvent{Modified, path, m.last, values[i], old.rev}
		if op.Delete {
			ev.typ = Deleted
			delete(m.objects, path)
		} else {
			if !existed {
				ev.typ = Added
			}
			m.objects[path] = modelObject{m.last, values[i]}
		}
		m.history = append(m.history, ev)
	}
}

func (m *model) op(t *rapid.T, label string) Op {
	ns := rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, label+" ns")
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, label+" name")
	cur := m.objects[Path(ns, name)]
	op := Op{Key: key(ns, name), Expect: cur.rev, Object: configMap(ns, name, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, label+" value"))}
	switch rapid.IntRange(0, 9).Draw(t, label+" kind") {
	case 0:
		op.Expect++ // stale
	case 1, 2:
		op.Delete = true
	}
	return op
}

// check compares everything that can be read with the model.
func (m *model) check(t *rapid.T) {
	if m.s == nil {
		return
	}
	if got := m.state(m.s.Snapshot(configmaps)); !maps.Equal(got, m.objects) {
		t.Fatalf("store has %v, model %v", got, m.objects)
	}
	for len(m.history) > m.watched {
		evs, err := m.watch.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			want := m.history[m.watched]
			got := modelEvent{ev.Type, ev.Entry.Path(), ev.Revision, ev.Entry.Object.(*corev1.ConfigMap).Data["v"], 0}
			if ev.Prev != nil {
				got.prev = ev.Prev.Revision
			}
			if got != want {
				t.Fatalf("event %+v, want %+v", got, want)
			}
			m.watched++
		}
	}
}

func (m *model) state(s Snapshot) map[string]modelObject {
	out := map[string]modelObject{}
	var paths []string
	s.Ascend("", "", func(e *Entry) bool {
		cm := e.Object.(*corev1.ConfigMap)
		if cm.ResourceVersion != e.Revision.String() {
			m.t.Fatalf("%s says %s at %d", e.Path(), cm.ResourceVersion, e.Revision)
		}
		out[e.Path()] = modelObject{e.Revision, cm.Data["v"]}
		paths = append(paths, e.Path())
		return true
	})
	if !slices.IsSorted(paths) {
		m.t.Fatalf("not in order: %v", paths)
	}
	return out
}

// past replays the history up to a revision.
func (m *model) past(rev Revision) map[string]modelObject {
	out := map[string]modelObject{}
	for _, ev := range m.history {
		if ev.rev > rev {
			break
		}
		if ev.typ == Deleted {
			delete(out, ev.path)
		} else {
			out[ev.path] = modelObject{ev.rev, ev.value}
		}
	}
	return out
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: rt, cfg: Config{Path: tempPath(t)}, objects: map[string]modelObject{}}
		m.open()
		defer func() { m.s.Close() }()
		floor := Revision(0)
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"write": func(t *rapid.T) {
				m.t = t
				m.write(m.op(t, "op"))
			},
			"write two": func(t *rapid.T) {
				m.t = t
				a, b := m.op(t, "first"), m.op(t, "second")
				if a.Key == b.Key {
					t.Skip("same key")
				}
				m.write(a, b)
			},
			"look back": func(t *rapid.T) {
				m.t = t
				if len(m.history) == 0 {
					t.Skip("no past")
				}
				rev := rapid.SampledFrom(m.history).Draw(t, "event").rev
				s, err := m.s.SnapshotAt(configmaps, rev)
				if rev < floor {
					if !errors.Is(err, ErrExpired) {
						t.Fatalf("revision %d before the start: %v", rev, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, want := m.state(s), m.past(rev); !maps.Equal(got, want) {
					t.Fatalf("at %d: %v, want %v", rev, got, want)
				}
			},
			"watch the past": func(t *rapid.T) {
				m.t = t
				if len(m.history) == 0 {
					t.Skip("no past")
				}
				i := rapid.IntRange(0, len(m.history)-1).Draw(t, "event")
				w, err := m.s.Watch(configmaps, m.history[i].rev, WatchOptions{})
				if m.history[i].rev < floor {
					if !errors.Is(err, ErrExpired) {
						t.Fatalf("revision before the start: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				evs, err := w.Take()
				if err != nil || len(evs) != len(m.history)-i-1 {
					t.Fatalf("%d events, want %d: %v", len(evs), len(m.history)-i-1, err)
				}
			},
			"reopen": func(t *rapid.T) {
				m.t = t
				m.check(t)
				if err := m.s.Close(); err != nil {
					t.Fatal(err)
				}
				m.open()
				floor = m.last
			},
		})
	})
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t)})
	put(t, s, "x", "a", "1", 0)
	before := s.Revision()
	_, err := s.Write(context.Background(),
		Op{Key: key("x", "b"), Object: configMap("x", "b", "1")}, Op{Key: key("x", "a"), Object: configMap("x", "a", "2")})
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	if _, ok := s.Get(key("x", "b")); ok || s.Revision() != before {
		t.Fatal("half of a write was done")
	}
	if _, err := s.Write(context.Background(), Op{Key: key("x", "b"), Object: configMap("x", "b", "1")}, Op{Key: key("x", "b"), Object: configMap("x", "b", "1")}); err == nil {
		t.Fatal("one key twice in a write was taken")
	}
	s.Close()
	if _, err := s.Write(context.Background(), Op{Key: key("x", "c"), Object: configMap("x", "c", "1")}); !errors.Is(err, ErrClosed) {
		t.Fatalf("write to a closed store: %v", err)
	}
}
