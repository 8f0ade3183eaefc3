package storage

import (
	"fmt"
	"sort"
	"sync"
)

// EventType says what happened to an object.
type EventType string

// The event types have the API's words.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is one committed change. It is shared and never changes.
type Event struct {
	Type     EventType
	Revision Revision
	// Entry is the new state; for Deleted the last state, with the revision of the deletion.
	Entry *Entry
	// Prev is the state before; nil for Added.
	Prev *Entry

	leftOnce sync.Once
	left     *Entry

	frames forms
}

// Frame returns the bytes that show the event to watchers, in the named form and as an event of
// the type that they see. They are made by encode the first time and shared by everybody who asks
// later, and must not be changed.
func (ev *Event) Frame(t EventType, name string, encode func() ([]byte, error)) ([]byte, error) {
	return ev.frames.get(formName{name, t}, encode)
}

// Left is the state before, as a watcher sees it whose selector the object has left:
// with the revision of this event.
func (ev *Event) Left() *Entry {
	ev.leftOnce.Do(func() {
		if ev.Prev != nil {
			ev.left = ev.Prev.at(ev.Revision)
		}
	})
	return ev.left
}

// cost estimates the memory that an event keeps alive.
func (ev *Event) cost() int { return 512 + 4*ev.Entry.size }

// ring holds the latest events of one resource, in order.
type ring struct {
	events []*Event // events[head:] are live
	head   int
	floor  Revision // every event after it is in the ring
}

// keepForms is how many of the latest events keep their encoded bytes.
const keepForms = 256

func (r *ring) len() int { return len(r.events) - r.head }

func (r *ring) append(ev *Event) {
	r.events = append(r.events, ev)
	if n := r.len(); n > keepForms {
		old := r.events[len(r.events)-1-keepForms]
		old.frames.forget()
		old.Entry.forms.forget()
	}
}

// drop removes the oldest event and returns its cost.
func (r *ring) drop() int {
	ev := r.events[r.head]
	r.events[r.head] = nil
	r.head++
	r.floor = ev.Revision
	if r.head > 64 && r.head > len(r.events)/2 {
		n := copy(r.events, r.events[r.head:])
		clear(r.events[n:])
		r.events, r.head = r.events[:n], 0
	}
	return ev.cost()
}

// since returns a copy of the events after a revision.
func (r *ring) since(after Revision) ([]*Event, error) {
	if after < r.floor {
		return nil, fmt.Errorf("%w: %d (%d)", ErrExpired, after, r.floor)
	}
	live := r.events[r.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].Revision > after })
	return append([]*Event(nil), live[i:]...), nil
}
