package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"drydock.dev/drydock/apiserverlite/storage"
)

// watching is one watch that is about to be streamed.
type watching struct {
	x         *exchange
	match     matcher
	opts      *internalversion.ListOptions
	source    *storage.Watch
	initial   []*storage.Entry
	marker    bool             // the bookmark that ends the initial events is due
	at        storage.Revision // everything up to here was sent
	failed    error            // answer with an ERROR event at once
	bookmarks bool
	limit     time.Duration
}

func (x *exchange) watch(ctx context.Context) (reply, error) {
	o, err := x.listOptions()
	if err != nil {
		return reply{}, err
	}
	m, err := x.matcher(o)
	if err != nil {
		return reply{}, err
	}
	if x.out.as == "Table" {
		if _, err := x.tableOptions(); err != nil {
			return reply{}, err
		}
	}
	if x.out.media == mediaYAML {
		return reply{}, notAcceptable(streams)
	}
	w := &watching{x: x, match: m, opts: o, bookmarks: o.AllowWatchBookmarks}
	w.limit = watchLeast + rand.N(watchLeast)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		w.limit = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	if err := w.start(ctx); err != nil {
		return reply{}, err
	}
	if !x.s.stream() {
		w.stop()
		return reply{}, storage.ErrClosed
	}
	return reply{stream: w.serve, discard: w.end}, nil
}

// start follows the table of resourceVersion and sendInitialEvents.
func (w *watching) start(ctx context.Context) error {
	o, x := w.opts, w.x
	scope := storage.WatchOptions{Namespace: x.in.namespace, Queue: x.s.cfg.WatchQueue}
	if w.match.name != "" && (x.in.namespace != "" || !x.res.Namespaced) {
		scope.Name = w.match.name
	}
	var after storage.Revision
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		var err error
		if after, err = parseRevision(o.ResourceVersion); err != nil {
			return err
		}
	}
	asked := o.SendInitialEvents != nil
	withInitial := asked && *o.SendInitialEvents || !asked && after == 0
	if !withInitial && after != 0 {
		src, err := x.s.store.Watch(x.res.Storage, after, scope)
		if errors.Is(err, storage.ErrExpired) {
			w.failed = expired("too old resource version: " + oldText(err))
			return nil
		}
		w.source, w.at = src, after
		return err
	}
	if asked && after != 0 {
		if err := x.reach(ctx, after); err != nil {
			w.failed = err
			return nil
		}
	}
	snap, src, err := x.s.store.WatchNow(x.res.Storage, scope)
	if err != nil {
		return err
	}
	w.source, w.at = src, snap.Revision
	if !withInitial {
		return nil
	}
	w.marker = w.bookmarks
	take := func(e *storage.Entry) bool {
		if w.match.matches(e) {
			w.initial = append(w.initial, e)
		}
		return true
	}
	if scope.Name != "" {
		if e, ok := snap.Get(scope.Namespace, scope.Name); ok {
			take(e)
		}
		return nil
	}
	snap.Ascend(x.in.namespace, "", take)
	return nil
}

// end undoes start and the registration with the server.
func (w *watching) end() {
	w.stop()
	w.x.s.streams.Done()
}

func (w *watching) stop() {
	if w.source != nil {
		w.source.Stop()
	}
}

// serve streams until the client goes, the time is up, the server closes or the client lags too far behind.
// Time and the server's end end the stream cleanly: the client comes again with the last revision it saw. One that
// lags is told that events are missing, by an error 410 after those that it gets.
func (w *watching) serve(rw http.ResponseWriter) {
	defer w.end()
	out := newFrames(w.x, rw)
	// Only a watch that begins as a list does is compressed: what is long is its beginning.
	out.zipped = w.bookmarks && w.opts.SendInitialEvents != nil && *w.opts.SendInitialEvents && zipped(w.x.r)
	defer out.close()
	defer out.report()
	out.open()
	if w.failed != nil {
		out.error(status(w.failed))
		_ = out.flush() // the stream ends either way
		return
	}
	for i, e := range w.initial {
		out.event(storage.Added, e)
		w.initial[i] = nil
		if !out.flushFrom(64 << 10) {
			return
		}
	}
	w.initial = nil
	if w.marker {
		out.bookmark(w.at, true)
	}
	if !out.flush() {
		return
	}
	w.follow(out)
}

// follow waits in one place for all that can happen: with hundreds of watches, asking many channels at
// each event would cost more than the event.
func (w *watching) follow(out *frames) {
	s, ctx := w.x.s, w.x.r.Context()
	defer context.AfterFunc(ctx, w.source.Wake)()
	defer context.AfterFunc(s.life, w.source.Wake)()
	times := newAgenda(s.wall.Now(), w.limit, w.bookmarks)
	alarm := s.wall.AfterFunc(times.wait(), w.source.Wake)
	defer alarm.Stop()
	for {
		over := w.wait()
		if ctx.Err() != nil || s.life.Err() != nil {
			return
		}
		evs, err := w.source.Take()
		for _, ev := range evs {
			w.send(out, ev)
			if !out.flushFrom(64 << 10) {
				return
			}
		}
		if errors.Is(err, storage.ErrSlow) {
			s.log.Warn().Str("agent", w.x.r.UserAgent()).Str("resource", w.x.res.GR().String()).Msg("watch ended: the client does not keep up")
			out.error(status(expired(fmt.Sprintf("too old resource version: %d (%d): the watch did not keep up, and events were dropped", w.at, s.store.Revision()))))
		}
		if times.due(s.wall.Now()) {
			over = over || times.over
			if !over {
				w.progress(out)
				alarm.Reset(times.wait())
			}
		}
		if !out.flush() || over || err != nil {
			return // the stream ends either way
		}
	}
}

// wait waits for something to happen, and is true when what is watched is no longer served.
func (w *watching) wait() (over bool) {
	if w.x.res.ended == nil {
		<-w.source.Ready()
		return false
	}
	select {
	case <-w.source.Ready():
		return false
	case <-w.x.res.ended:
		return true
	}
}

// progress sends a bookmark if everything before it was sent.
func (w *watching) progress(out *frames) {
	if rev, ok := w.source.Progress(); ok && rev > w.at {
		w.at = rev
		out.bookmark(rev, false)
	}
}

// send shows an event as the selector sees it: entering is ADDED, leaving is DELETED with the
// state before at the event's revision.
func (w *watching) send(out *frames, ev *storage.Event) {
	w.at = ev.Revision
	if w.match.all() {
		out.shared(ev, ev.Type, ev.Entry)
		return
	}
	was := w.match.matches(ev.Prev)
	is := ev.Type != storage.Deleted && w.match.matches(ev.Entry)
	switch {
	case is && was:
		out.shared(ev, storage.Modified, ev.Entry)
	case is:
		out.shared(ev, storage.Added, ev.Entry)
	case was && ev.Type == storage.Deleted:
		out.shared(ev, storage.Deleted, ev.Entry)
	case was:
		out.shared(ev, storage.Deleted, ev.Left())
	}
}

// oldText is the part of a storage error that says which revision met which.
func oldText(err error) string {
	const prefix = "revision is too old: "
	if s := err.Error(); len(s) > len(prefix) {
		return s[len(prefix):]
	}
	return err.Error()
}
