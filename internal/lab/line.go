package lab

import (
	"context"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// Line is a component's line to the API server and the cloud. While it is cut, nothing gets
// through: what is under way breaks off, and new requests wait until it is whole or their
// callers give up. Rules cut it with the action Cut, and hold up its watches with Stale.
type Line struct {
	component, node string
	next            http.RoundTripper
	f               *Faults

	mu     sync.Mutex
	own    bool                         // guarded by mu: cut by Cut
	rules  []*Handle                    // guarded by mu: those that cut it
	healed chan struct{}                // guarded by mu: closes when the line is whole again; nil while it is
	under  map[*context.CancelFunc]Call // guarded by mu: requests under way
}

// Line makes the line of a component: "kubelet/n1", "attacher". It stays known to the
// rules, so a component has one line for all its lives.
func (f *Faults) Line(name string, next http.RoundTripper) *Line {
	component, node, _ := strings.Cut(name, "/")
	l := &Line{component: component, node: node, next: next, f: f, under: map[*context.CancelFunc]Call{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, l)
	f.strain()
	return l
}

// strain makes each line what the rules say. The caller holds f.mu.
func (f *Faults) strain() {
	for _, l := range f.lines {
		var by []*Handle
		for _, h := range f.rules {
			if h.Rule.Action == Cut && !AboveRules(l.component) && glob(h.Rule.Component, l.component) && glob(h.Rule.Node, l.node) {
				by = append(by, h)
			}
		}
		l.mu.Lock()
		broken := l.set(l.own, by)
		l.mu.Unlock()
		for _, c := range broken {
			by[0].count(c)
		}
	}
}

// set changes who cuts the line and returns the requests that it broke off. The caller holds mu.
func (l *Line) set(own bool, by []*Handle) (broken []Call) {
	was := l.own || len(l.rules) > 0
	l.own, l.rules = own, by
	is := own || len(by) > 0
	switch {
	case is && !was:
		l.healed = make(chan struct{})
		for cancel, c := range l.under {
			(*cancel)()
			broken = append(broken, c)
		}
	case !is && was:
		close(l.healed)
		l.healed = nil
	}
	if len(by) == 0 {
		return nil
	}
	return broken
}

// Cut cuts the line, besides the rules.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(true, l.rules)
}

// Heal ends Cut. Rules may cut it all the same.
func (l *Line) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(false, l.rules)
}

// IsCut tells whether anything gets through.
func (l *Line) IsCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.healed != nil
}

// RoundTrip is http.RoundTripper's.
func (l *Line) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	call := Call{Component: l.component, Node: l.node, Kind: KindAPI, Op: req.Method + " " + req.URL.Path}
	if strings.HasPrefix(req.URL.Path, "/v2") {
		call.Kind = KindCloud
	}
	for {
		l.mu.Lock()
		healed, by := l.healed, l.rules
		if healed == nil {
			l.under[&cancel] = call
			l.mu.Unlock()
			break
		}
		l.mu.Unlock()
		if err := wait(req.Context(), healed, by, call); err != nil {
			cancel()
			return nil, err
		}
	}
	over := func() {
		l.mu.Lock()
		delete(l.under, &cancel)
		l.mu.Unlock()
		cancel()
	}
	resp, err := l.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		over()
		return nil, err
	}
	resp.Body = &lineBody{ReadCloser: resp.Body, over: over}
	if w := watched(req, call); w.Op != "" {
		resp.Body = &lagging{ReadCloser: resp.Body, f: l.f, call: w, ctx: ctx}
	}
	return resp, nil
}

// wait is a request that meets a line which is cut.
func wait(ctx context.Context, healed <-chan struct{}, by []*Handle, c Call) error {
	if len(by) > 0 {
		h := by[0]
		h.f.mu.Lock()
		h.count(c)
		h.f.mu.Unlock()
		defer h.hold()()
	}
	select {
	case <-healed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lineBody is an answer that is over when it is closed.
type lineBody struct {
	io.ReadCloser
	over func()
}

func (b *lineBody) Close() error {
	err := b.ReadCloser.Close()
	b.over()
	return err
}

// watched is the call of a watch as rules know it: "watch pods". Its Op is empty for other requests.
func watched(req *http.Request, c Call) Call {
	c.Op = ""
	if !strings.Contains(req.URL.RawQuery, "watch=") {
		return c
	}
	if v := req.URL.Query().Get("watch"); v == "" || v == "false" || v == "0" {
		return c
	}
	c.Op = "watch " + path.Base(req.URL.Path)
	parts := strings.Split(req.URL.Path, "/")
	if i := slices.Index(parts, "namespaces"); i >= 0 && i+2 < len(parts) {
		c.Namespace = parts[i+1]
	}
	return c
}

// lagging is the answer to a watch, which stale rules hold up. What the server has sent
// meanwhile comes in one go afterwards.
type lagging struct {
	io.ReadCloser
	f    *Faults
	call Call
	ctx  context.Context // of the request; ends at Close too
}

func (b *lagging) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for n > 0 {
		h := b.f.stale(b.call)
		if h == nil {
			break
		}
		letGo := h.hold()
		select {
		case <-h.released:
			letGo()
		case <-b.ctx.Done():
			letGo()
			return 0, b.ctx.Err()
		}
	}
	return n, err
}

// stale finds the rule that holds up a watch and counts.
func (f *Faults) stale(c Call) *Handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.rules {
		if h.Rule.Action != Stale || !h.Rule.concerns(c) {
			continue
		}
		select {
		case <-h.released:
			continue
		default:
		}
		if h.fires(c) {
			return h
		}
	}
	return nil
}
