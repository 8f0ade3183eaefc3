package server

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Times of a watch. They are real time: the client at the other end has no other.
const (
	watchLeast    = 30 * time.Minute // without timeoutSeconds, up to twice that
	bookmarkEvery = time.Minute
	bookmarkAhead = 2 * time.Second  // before the end, so that the next watch starts close by
	watchStall    = 30 * time.Second // a client that takes nothing for so long is cut off
)

// agenda is when a watch has something to do of itself: bookmarks in between and shortly
// before the end, if they are wanted, and the end.
type agenda struct {
	now, next, last, end time.Time // last is the final bookmark; zero is none
	every                time.Duration
	over                 bool // the end has come
}

func newAgenda(now time.Time, limit time.Duration, bookmarks bool) *agenda {
	a := &agenda{now: now, end: now.Add(limit)}
	if bookmarks {
		a.every = bookmarkEvery + rand.N(bookmarkEvery/10)
		if limit > 2*bookmarkAhead {
			a.last = a.end.Add(-bookmarkAhead)
		}
	}
	a.plan()
	return a
}

func (a *agenda) plan() {
	a.next = a.end
	for _, t := range []time.Time{a.now.Add(a.every), a.last} {
		if t.After(a.now) && t.Before(a.next) {
			a.next = t
		}
	}
}

// wait is how long nothing is to be done.
func (a *agenda) wait() time.Duration { return a.next.Sub(a.now) }

// due tells whether something is to be done now: a bookmark, or the end if over is set. It
// plans what comes after.
func (a *agenda) due(now time.Time) bool {
	if a.now = now; now.Before(a.next) {
		return false
	}
	a.over = !now.Before(a.end)
	a.plan()
	return true
}

// stall cuts off a client that does not read: it would hold its stream for ever. A write is only
// marked, which costs no more than a look at the clock; the alarm looks at the marks.
type stall struct {
	wall clock.WithDelayedExecution
	cut  func()

	mu    sync.Mutex
	since time.Time   // guarded by mu: of the write in progress; zero is none
	armed bool        // guarded by mu: look will be called
	alarm clock.Timer // guarded by mu; nil before the first write
}

// newStall watches over what is written to w. A writer without deadlines has no client that does not read.
func newStall(wall clock.WithDelayedExecution, w http.ResponseWriter) *stall {
	return &stall{wall: wall, cut: func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) }}
}

// during runs one write. Once it has returned, cut is not called for it any more.
func (s *stall) during(write func() error) error {
	s.mark(s.wall.Now())
	defer s.mark(time.Time{})
	return write()
}

func (s *stall) mark(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = t
	if !t.IsZero() && !s.armed {
		s.arm(watchStall)
	}
}

// arm needs mu.
func (s *stall) arm(after time.Duration) {
	s.armed = true
	if s.alarm == nil {
		s.alarm = s.wall.AfterFunc(after, s.look)
		return
	}
	s.alarm.Reset(after)
}

func (s *stall) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.since.IsZero() {
		return
	}
	if left := watchStall - s.wall.Since(s.since); left > 0 {
		s.arm(left)
		return
	}
	s.cut()
}

// stop ends the alarm. No write follows.
func (s *stall) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm != nil {
		s.alarm.Stop()
	}
}
