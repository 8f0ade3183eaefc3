package server

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// view is what one watch selects.
type view struct {
	ns, name string
	port     bool
}

func (v view) shows(l *logged, s step) bool {
	return !s.deleted && (v.ns == "" || v.ns == l.ns) && (v.name == "" || v.name == l.name) && (!v.port || s.port)
}

func (v view) options() metav1.ListOptions {
	var o metav1.ListOptions
	if v.name != "" {
		o.FieldSelector = "metadata.name=" + v.name
	}
	if v.port {
		o.LabelSelector = "port=true"
	}
	return o
}

// follower watches until it has seen all that the writers did, through restarts and expiry.
type follower struct {
	view
	client   kubernetes.Interface
	streamed bool // its state comes by the watch, not by a list
	slow     bool // it takes nothing from its first watch until it is released
	absent   bool // it leaves its first watch, and comes back when it is released
	sessions []*session
}

// follow opens sessions until the last one has no event to wait for.
func (w *logWorld) follow(f *follower) {
	c := f.client.CoreV1().ConfigMaps(f.ns)
	resume := "" // where a stream that ended cleanly is gone on from
	for w.ctx.Err() == nil && !w.finished(f) {
		o := f.options()
		s := &session{}
		switch {
		case resume != "":
			s, o.ResourceVersion = f.sessions[len(f.sessions)-1], resume
		case f.streamed:
			o.SendInitialEvents, o.ResourceVersionMatch, o.AllowWatchBookmarks = ptr.To(true), metav1.ResourceVersionMatchNotOlderThan, true
		default:
			list, err := c.List(w.ctx, o)
			if err != nil {
				w.awaitServer()
				continue
			}
			for i := range list.Items {
				s.state = append(s.state, w.look(watch.Added, &list.Items[i]))
			}
			s.at, o.ResourceVersion = w.revision(list.ResourceVersion), list.ResourceVersion
			f.sessions = append(f.sessions, s)
		}
		stream, err := c.Watch(w.ctx, o)
		if err != nil {
			w.awaitServer()
			continue
		}
		if len(f.sessions) == 1 && resume == "" && (f.slow || f.absent) {
			if f.absent {
				stream.Stop()
			}
			w.paused <- struct{}{}
			<-w.released
		}
		resume = w.take(f, s, stream, o.ResourceVersion)
		stream.Stop()
	}
}

// take reads one stream, from a revision unless that is empty, and returns the revision to go on from: none if events
// are missing.
func (w *logWorld) take(f *follower, s *session, stream watch.Interface, last string) string {
	initial := last == ""
	for {
		var e watch.Event
		var open bool
		select {
		case e, open = <-stream.ResultChan():
		case <-w.done:
			if w.finished(f) {
				return ""
			}
			e, open = <-stream.ResultChan()
		}
		if !open {
			return last
		}
		switch o := e.Object.(type) {
		case *metav1.Status:
			if o.Reason != metav1.StatusReasonExpired || o.Code != http.StatusGone {
				return last // the client could not read on
			}
			s.expired = true
			if s == f.sessions[0] && (f.slow || f.absent) {
				w.told <- struct{}{}
			}
			return ""
		case *corev1.ConfigMap:
			if !initial {
				last = o.ResourceVersion
			}
			switch {
			case e.Type == watch.Bookmark && initial:
				if o.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
					w.t.Error("a bookmark among the initial events")
				}
				s.at, last, initial = w.revision(o.ResourceVersion), o.ResourceVersion, false
				f.sessions = append(f.sessions, s)
			case e.Type == watch.Bookmark:
			case initial:
				s.state = append(s.state, w.look(e.Type, o))
			default:
				s.seen = append(s.seen, w.look(e.Type, o))
			}
		}
	}
}

// finished tells whether the writers have ended and the last session has seen the last of what it shall.
func (w *logWorld) finished(f *follower) bool {
	select {
	case <-w.done:
	default:
		return false
	}
	if len(f.sessions) == 0 {
		return false
	}
	rest, err := w.replay(f.view, f.sessions[len(f.sessions)-1])
	return rest == 0 || err != nil
}

// replay holds a session against the log: the state that it begins with is that of its revision, and its events are the
// writes after it, each once, in their order. It tells how many are still to come.
func (w *logWorld) replay(v view, s *session) (rest int, err error) {
	var at [logWriters]int // the step that is seen of each object; -1 before the first
	begins := map[int]seen{}
	for _, o := range s.state {
		begins[o.object] = o
	}
	for i := range w.log {
		if at[i], err = begin(v, &w.log[i], begins, i, s.at); err != nil {
			return 0, err
		}
	}
	last := s.at
	for _, e := range s.seen {
		l := &w.log[e.object]
		if e.rev <= last {
			return 0, fmt.Errorf("%s at %d after %d", l.name, e.rev, last)
		}
		last = e.rev
		next, want, ok := v.next(l, at[e.object])
		if !ok {
			return 0, fmt.Errorf("%s: %+v is beyond the log", l.name, e)
		}
		got := e
		if l.steps[next].deleted {
			got.rev = 0
		}
		if want.object = e.object; got != want {
			return 0, fmt.Errorf("%s: got %+v, the log has %+v after step %d", l.name, e, want, at[e.object])
		}
		at[e.object] = next
	}
	for i := range w.log {
		for a, ok := at[i], true; ok; {
			if a, _, ok = v.next(&w.log[i], a); ok {
				rest++
			}
		}
	}
	return rest, nil
}

// begin finds the step of an object that was the last one at a revision.
func begin(v view, l *logged, state map[int]seen, i int, rev uint64) (int, error) {
	after := 0 // the first step that is known to be later
	for after < len(l.steps) && l.steps[after].rev <= rev {
		after++
	}
	now := after - 1
	o, listed := state[i]
	if listed && now > 0 && l.steps[now].deleted && l.steps[now-1].rev == o.rev {
		now-- // the deletion, whose revision is not told, is later
	}
	shown := now >= 0 && v.shows(l, l.steps[now])
	if listed != shown || listed && (l.steps[now].rev != o.rev || l.steps[now].n != o.n) {
		return 0, fmt.Errorf("%s at %d: listed %v as %+v, the log's step is %d", l.name, rev, listed, o, now)
	}
	return now, nil
}

// next is the next step after one that a view shows, and the event that it makes.
func (v view) next(l *logged, at int) (int, seen, bool) {
	for i := at + 1; i < len(l.steps); i++ {
		s := l.steps[i]
		was, is := i > 0 && v.shows(l, l.steps[i-1]), v.shows(l, s)
		switch {
		case was && is:
			return i, seen{typ: watch.Modified, rev: s.rev, n: s.n}, true
		case is:
			return i, seen{typ: watch.Added, rev: s.rev, n: s.n}, true
		case was:
			return i, seen{typ: watch.Deleted, rev: s.rev, n: l.steps[i-1].n}, true
		}
	}
	return len(l.steps), seen{}, false
}
