package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"
)

// DefaultSpans is how many spans a timeline keeps when Options says nothing.
const DefaultSpans = 20000

// Span is one piece of work in the life of a volume, as it stood at revision Rev.
type Span struct {
	// Rev orders all changes of the timeline; a span changes at its start and at its end.
	Rev uint64 `json:"rev"`
	// ID is the OpenTelemetry span id; TraceID is the volume's.
	ID       string `json:"id"`
	TraceID  string `json:"traceID"`
	ParentID string `json:"parentID,omitempty"`
	// Volume is the PV name, or the handle as long as no PV name is known for it.
	Volume    string            `json:"volume,omitempty"`
	Component string            `json:"component"`
	Node      string            `json:"node,omitempty"`
	Op        string            `json:"op"`
	Start     time.Time         `json:"start"`
	End       time.Time         `json:"end,omitzero"` // zero while it runs
	Code      string            `json:"code,omitempty"`
	Error     string            `json:"error,omitempty"`
	Attrs     map[string]string `json:"attrs,omitempty"`
}

// Timeline records spans, one OpenTelemetry trace for each volume, and streams them.
//
// Ordering: a subscriber sees every change once, by ascending Rev. Blocking:
// writers never wait; a subscriber that lags behind by more than its buffer is
// closed and can join again with what it has seen.
type Timeline struct {
	clock  clock.PassiveClock
	tracer trace.Tracer

	mu      sync.Mutex
	rev     uint64                 // guarded by mu
	bound   int                    // constant
	order   []trace.SpanID         // guarded by mu: by start, oldest first
	spans   map[trace.SpanID]*Span // guarded by mu
	volumes map[string]spanSet     // guarded by mu: the recorded spans about each volume
	aliases map[string]string      // guarded by mu: handle -> PV name; as many as spans are kept
	handles []string               // guarded by mu: of aliases, oldest first
	subs    map[*Subscription]struct{}
}

func newTimeline(c clock.PassiveClock, bound int) *Timeline {
	if bound <= 0 {
		bound = DefaultSpans
	}
	t := &Timeline{clock: c, bound: bound, spans: map[trace.SpanID]*Span{}, volumes: map[string]spanSet{}, aliases: map[string]string{}, subs: map[*Subscription]struct{}{}}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithIDGenerator(ids{}), sdktrace.WithSpanProcessor(processor{t}), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	t.tracer = p.Tracer("drydock.dev/drydock")
	return t
}

type spanSet map[trace.SpanID]struct{}

// SpanOptions says what a span is about.
type SpanOptions struct {
	Op        string
	Volume    string // handle or PV name
	Component string // taken from the context's Component when empty
	Node      string
	Attrs     map[string]string
}

// Ender ends a span. A nil Ender does nothing.
type Ender struct {
	t    *Timeline
	span trace.Span
}

// Start begins a span. A span started from the returned context becomes its child.
// A nil Timeline records nothing.
func (t *Timeline) Start(ctx context.Context, o SpanOptions) (context.Context, *Ender) {
	if t == nil {
		return ctx, nil
	}
	if c := ComponentFrom(ctx); c != nil {
		if o.Component == "" {
			o.Component = c.Kind()
		}
		if o.Node == "" {
			o.Node = c.Node()
		}
	}
	volume := t.canonical(o.Volume)
	attrs := []attribute.KeyValue{
		attribute.String("drydock.volume", volume), attribute.String("drydock.component", o.Component), attribute.String("drydock.node", o.Node)}
	for k, v := range o.Attrs {
		attrs = append(attrs, attribute.String(k, v))
	}
	ctx, s := t.tracer.Start(context.WithValue(ctx, volumeKey{}, volume), o.Op, trace.WithTimestamp(t.clock.Now()), trace.WithAttributes(attrs...))
	return ctx, &Ender{t: t, span: s}
}

// End ends the span with the outcome. Code is a transport's own word for it ("Internal", "404"); it may be empty.
func (e *Ender) End(code string, err error) {
	if e == nil {
		return
	}
	if code != "" {
		e.span.SetAttributes(attribute.String("drydock.code", code))
	}
	if err != nil {
		e.span.SetStatus(codes.Error, err.Error())
	}
	e.span.End(trace.WithTimestamp(e.t.clock.Now()))
}

// Set adds an attribute to a running span.
func (e *Ender) Set(key, value string) {
	if e != nil {
		e.span.SetAttributes(attribute.String(key, value))
	}
}

// Alias makes handle another name of the volume called name. Spans already
// recorded under the handle move to it.
func (t *Timeline) Alias(handle, name string) {
	if t == nil || handle == "" || name == "" || handle == name {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.aliases[handle]
	if old == name {
		return
	}
	if t.aliases[handle] = name; !known {
		t.handles = append(t.handles, handle)
	}
	if len(t.handles) > t.bound {
		delete(t.aliases, t.handles[0])
		t.handles = t.handles[1:]
	}
	moved := t.volumes[handle]
	delete(t.volumes, handle)
	for _, id := range slices.SortedFunc(maps.Keys(moved), func(a, b trace.SpanID) int { return cmp.Compare(t.spans[a].Rev, t.spans[b].Rev) }) {
		s := t.spans[id]
		s.Volume, s.TraceID = name, traceID(name).String()
		t.about(s, id)
		t.publish(s)
	}
}

// about notes which volume a span is about. The caller holds mu.
func (t *Timeline) about(s *Span, id trace.SpanID) {
	if s.Volume == "" {
		return
	}
	if t.volumes[s.Volume] == nil {
		t.volumes[s.Volume] = spanSet{}
	}
	t.volumes[s.Volume][id] = struct{}{}
}

// drop forgets the oldest span. The caller holds mu.
func (t *Timeline) drop() {
	id := t.order[0]
	t.order = t.order[1:]
	volume := t.spans[id].Volume
	delete(t.spans, id)
	if delete(t.volumes[volume], id); len(t.volumes[volume]) == 0 {
		delete(t.volumes, volume)
	}
}

func (t *Timeline) canonical(volume string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := t.aliases[volume]; ok {
		return name
	}
	return volume
}

// Rev is the revision of the latest change.
func (t *Timeline) Rev() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rev
}

// Spans returns the recorded spans by start, oldest first.
func (t *Timeline) Spans() []Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list()
}

func (t *Timeline) list() []Span {
	out := make([]Span, 0, len(t.order))
	for _, id := range t.order {
		if s := t.spans[id]; s != nil {
			out = append(out, *s)
		}
	}
	return out
}

// Subscription delivers changes of spans until it is closed.
type Subscription struct {
	// C closes when the subscriber was too slow or Close was called.
	C    <-chan Span
	c    chan Span
	t    *Timeline
	once sync.Once
}

// Subscribe returns what is recorded and, without a gap, everything after it.
func (t *Timeline) Subscribe(buffer int) ([]Span, *Subscription) {
	s := &Subscription{c: make(chan Span, max(buffer, 1)), t: t}
	s.C = s.c
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs[s] = struct{}{}
	return t.list(), s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.close()
}

func (s *Subscription) close() {
	delete(s.t.subs, s)
	s.once.Do(func() { close(s.c) })
}

// publish gives s the next revision and sends it. The caller holds mu.
func (t *Timeline) publish(s *Span) {
	t.rev++
	s.Rev = t.rev
	for sub := range t.subs {
		select {
		case sub.c <- *s:
		default:
			sub.close()
		}
	}
}

// processor feeds the OpenTelemetry SDK's spans into the timeline.
type processor struct{ t *Timeline }

func (p processor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { p.put(s, time.Time{}) }
func (p processor) OnEnd(s sdktrace.ReadOnlySpan)                       { p.put(s, s.EndTime()) }
func (p processor) Shutdown(context.Context) error                      { return nil }
func (p processor) ForceFlush(context.Context) error                    { return nil }

func (p processor) put(s sdktrace.ReadOnlySpan, end time.Time) {
	t, id := p.t, s.SpanContext().SpanID()
	rec := Span{ID: id.String(), TraceID: s.SpanContext().TraceID().String(), Op: s.Name(), Start: s.StartTime(), End: end, Attrs: map[string]string{}}
	if s.Parent().IsValid() {
		rec.ParentID = s.Parent().SpanID().String()
	}
	for _, kv := range s.Attributes() {
		switch v := kv.Value.AsString(); kv.Key {
		case "drydock.volume":
			rec.Volume = v
		case "drydock.component":
			rec.Component = v
		case "drydock.node":
			rec.Node = v
		case "drydock.code":
			rec.Code = v
		default:
			rec.Attrs[string(kv.Key)] = v
		}
	}
	if s.Status().Code == codes.Error {
		rec.Error = s.Status().Description
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := t.aliases[rec.Volume]; ok {
		rec.Volume, rec.TraceID = name, traceID(name).String()
	}
	_, known := t.spans[id]
	if !known && !end.IsZero() {
		return // dropped from the record while it ran
	}
	t.spans[id] = &rec
	if !known {
		t.order = append(t.order, id)
		t.about(&rec, id)
	}
	if len(t.order) > t.bound {
		t.drop()
	}
	t.publish(&rec)
}

type volumeKey struct{}

// ids gives every volume one trace; spans about no volume get a trace of their own.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var sid trace.SpanID
	rand.Read(sid[:])
	if v, _ := ctx.Value(volumeKey{}).(string); v != "" {
		return traceID(v), sid
	}
	var tid trace.TraceID
	rand.Read(tid[:])
	return tid, sid
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var sid trace.SpanID
	rand.Read(sid[:])
	return sid
}

func traceID(volume string) trace.TraceID {
	sum := sha256.Sum256([]byte(volume))
	return trace.TraceID(sum[:16])
}
