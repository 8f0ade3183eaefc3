package web

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/stages"
)

// journal collects log entries between two publications: Kubernetes events, and
// the calls and kernel operations of volumes, each when it has ended.
type journal struct {
	entries []entry
	seen    map[string]struct{} // spans by id, so that a timeline joined again repeats nothing
	order   []string
	seq     int
}

// entry is one line of the event list.
type entry struct {
	ID    string    `json:"id"`
	Seq   int       `json:"seq"`
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`  // event, call
	Level string    `json:"level"` // info, warn
	What  string    `json:"what"`  // an event's reason, a call's method
	About string    `json:"about,omitempty"`
	Claim string    `json:"claim,omitempty"` // the volume it concerns, as namespace/name
	Node  string    `json:"node,omitempty"`
	By    string    `json:"by,omitempty"`
	Code  string    `json:"code,omitempty"`
	Text  string    `json:"text,omitempty"`
	Fault string    `json:"fault,omitempty"` // the lab's rule that made this happen
	Count int       `json:"count,omitempty"`
	MS    float64   `json:"ms,omitempty"`
}

const maxSeen = 20000

func newJournal() journal { return journal{seen: map[string]struct{}{}} }

func (j *journal) event(o *corev1.Event, claims []stages.Ref) {
	e := entry{
		ID: "event/" + o.Namespace + "/" + o.Name, At: o.LastTimestamp.Time, Kind: "event", Level: "info", What: o.Reason,
		About: strings.ToLower(o.InvolvedObject.Kind) + "/" + o.InvolvedObject.Name, By: o.Source.Component, Text: o.Message, Count: int(o.Count),
	}
	if o.InvolvedObject.Namespace != "" {
		e.About = strings.ToLower(o.InvolvedObject.Kind) + "/" + o.InvolvedObject.Namespace + "/" + o.InvolvedObject.Name
	}
	if e.By == "" {
		e.By = o.ReportingController
	}
	if o.Type == corev1.EventTypeWarning {
		e.Level = "warn"
	}
	if o.Series != nil {
		e.Count, e.At = int(o.Series.Count), o.Series.LastObservedTime.Time
	}
	for _, at := range []time.Time{o.EventTime.Time, o.CreationTimestamp.Time} {
		if e.At.IsZero() {
			e.At = at
		}
	}
	switch {
	case o.InvolvedObject.Kind == "PersistentVolumeClaim":
		e.Claim = o.InvolvedObject.Namespace + "/" + o.InvolvedObject.Name
	case len(claims) == 1:
		e.Claim = claims[0].String()
	}
	j.add(e)
}

// span notes a call about a volume once it has ended. Probes and questions that
// succeed are left out: they are many and say nothing.
func (j *journal) span(s lab.Span, claim stages.Ref, known bool) {
	if s.End.IsZero() || s.Volume == "" {
		return
	}
	failed := stages.CallFailed(s.Code, s.Error)
	if !failed && !worthNoting(s.Op) {
		return
	}
	if _, again := j.seen[s.ID]; again {
		return
	}
	j.seen[s.ID] = struct{}{}
	if j.order = append(j.order, s.ID); len(j.order) > maxSeen {
		delete(j.seen, j.order[0])
		j.order = j.order[1:]
	}
	e := entry{
		ID: "span/" + s.ID, At: s.End, Kind: "call", Level: "info", What: s.Op, About: "volume/" + s.Volume, Node: s.Node, By: s.Component,
		Code: s.Code, Text: s.Error, Fault: s.Attrs["fault"], MS: float64(s.End.Sub(s.Start).Microseconds()) / 1000,
	}
	if failed {
		e.Level = "warn"
	}
	if known {
		e.Claim = claim.String()
	}
	j.add(e)
}

func worthNoting(op string) bool {
	switch op {
	case "Probe", "NodeGetCapabilities", "NodeGetVolumeStats", "NodeGetInfo", "ControllerGetVolume", "ControllerGetCapabilities", "ValidateVolumeCapabilities":
		return false
	}
	return true
}

func (j *journal) add(e entry) {
	j.seq++
	e.Seq = j.seq
	j.entries = append(j.entries, e)
}

// sortFirst puts what existed at the start, which comes in no order, by time.
func (j *journal) sortFirst() {
	slices.SortStableFunc(j.entries, func(a, b entry) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq)) })
	for i := range j.entries {
		j.entries[i].Seq = i + 1
	}
}

func (j *journal) pending() bool { return len(j.entries) > 0 }

// take returns the entries since the last call, as the stream carries them.
func (j *journal) take() []json.RawMessage {
	var out []json.RawMessage
	for _, e := range j.entries {
		if data, err := json.Marshal(e); err == nil {
			out = append(out, data)
		}
	}
	j.entries = nil
	return out
}
