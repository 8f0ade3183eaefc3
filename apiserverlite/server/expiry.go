package server

import (
	"container/heap"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/storage"
)

// eventLife is upstream's --event-ttl. Each write of an event begins it anew.
const eventLife = time.Hour

var eventsResource = schema.GroupResource{Resource: "events"}

// mortal is an event and when it goes.
type mortal struct {
	key storage.Key
	due time.Time
	at  int // in the heap
}

// deadlines is a heap, the next one due first.
type deadlines []*mortal

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].at, d[j].at = i, j }
func (d *deadlines) Push(x any)        { m := x.(*mortal); m.at = len(*d); *d = append(*d, m) }
func (d *deadlines) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// expiry removes events whose life is over. It follows the store, and sleeps on one timer for the next
// that is due. Watchers see DELETED. After a restart an event's own times say when it was last written.
type expiry struct {
	s     *Server
	order deadlines
	byKey map[storage.Key]*mortal
}

// expire runs until the server closes.
func (s *Server) expire() {
	for s.life.Err() == nil {
		e := &expiry{s: s, byKey: map[storage.Key]*mortal{}}
		if err := e.follow(); !errors.Is(err, storage.ErrSlow) {
			return
		}
	}
}

func (e *expiry) follow() error {
	snap, src, err := e.s.store.WatchNow(eventsResource, storage.WatchOptions{})
	if err != nil {
		return err
	}
	defer src.Stop()
	snap.Ascend("", "", func(en *storage.Entry) bool {
		e.live(en.Key, lastWritten(en, e.s.clock.Now()))
		return true
	})
	timer := e.s.cfg.Lab.Clock.NewTimer(eventLife)
	defer timer.Stop()
	for {
		timer.Stop()
		timer.Reset(e.next())
		e.end() // what became due while the timer was set

		select {
		case <-e.s.life.Done():
			return nil
		case <-timer.C():
			e.end()
		case <-src.Ready():
			evs, err := src.Take()
			for _, ev := range evs {
				switch ev.Type {
				case storage.Deleted:
					e.forget(ev.Entry.Key)
				case storage.Added:
					e.live(ev.Entry.Key, lastWritten(ev.Entry, e.s.clock.Now()))
				default:
					e.live(ev.Entry.Key, e.s.clock.Now())
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// next is how long to sleep.
func (e *expiry) next() time.Duration {
	if len(e.order) == 0 {
		return eventLife
	}
	return max(0, e.order[0].due.Sub(e.s.clock.Now()))
}

func (e *expiry) live(k storage.Key, since time.Time) {
	due := since.Add(eventLife)
	if m, ok := e.byKey[k]; ok {
		m.due = due
		heap.Fix(&e.order, m.at)
		return
	}
	m := &mortal{key: k, due: due}
	e.byKey[k] = m
	heap.Push(&e.order, m)
}

func (e *expiry) forget(k storage.Key) {
	if m, ok := e.byKey[k]; ok {
		heap.Remove(&e.order, m.at)
		delete(e.byKey, k)
	}
}

// end removes what is due. One that was just written again stays: its own event gives it a new life.
func (e *expiry) end() {
	now := e.s.clock.Now()
	for len(e.order) > 0 && !e.order[0].due.After(now) {
		k := e.order[0].key
		e.forget(k)
		en, ok := e.s.store.Get(k)
		if !ok {
			continue
		}
		_, err := e.s.store.Write(e.s.life, storage.Op{Key: k, Object: en.Object.DeepCopyObject(), Expect: en.Revision, Delete: true})
		var conflict *storage.ConflictError
		switch {
		case err == nil || errors.As(err, &conflict) || errors.Is(err, context.Canceled):
		default: // a disk that is full, say: try again later
			e.s.log.Warn().Err(err).Str("event", k.Path()).Msg("expire event")
			e.live(k, now.Add(time.Minute-eventLife))
		}
	}
}

// lastWritten is the latest of the times in an event, as far as it is not in the future.
func lastWritten(en *storage.Entry, now time.Time) time.Time {
	ev, ok := en.Object.(*corev1.Event)
	if !ok {
		return now
	}
	last := ev.CreationTimestamp.Time
	times := []time.Time{ev.LastTimestamp.Time, ev.EventTime.Time}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) && !t.After(now) {
			last = t
		}
	}
	return last
}
