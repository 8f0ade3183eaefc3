package stages

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
)

// volume is the record of one PV, or of calls about a volume that has none yet.
type volume struct {
	name     string
	handle   string
	driver   string
	claimUID types.UID
	pv       *pvRecord // nil while there is no object
	pvSeen   stamp
	pvGone   stamp
	released stamp
	problem  problem

	attachments map[string]*attachment // by node
	calls       map[callKey]*calls
	changed     time.Time
}

// pvRecord is what is kept of a PersistentVolume.
type pvRecord struct {
	uid         types.UID
	phase       string
	retain      bool
	provisioned bool // by a provisioner, as opposed to by hand
	deleting    bool
}

// attachment is the record of the VolumeAttachment of one node.
type attachment struct {
	name                     string
	uid                      types.UID
	seen, up, deleting, gone stamp
	attached                 bool
	attachErr, detachErr     string
	attachCode               string
}

type callKey struct{ op, node string }

// calls are the tries of one call on one node, oldest first.
type calls struct {
	tries   []Try
	dropped int
}

// Span takes in a span and returns the claims whose life may have changed. A span
// is fed at its start and again at its end; repeats do no harm.
func (t *Tracker) Span(s lab.Span) []Ref {
	op := stepOp(s.Op)
	if op == "" || s.Volume == "" {
		return nil
	}
	v := t.find(s.Volume)
	if v == nil {
		v = t.newVolume(s.Volume)
		t.orphans = append(t.orphans, s.Volume)
		t.trimOrphans()
	}
	node := s.Node
	if id := nodeIDIn(s.Attrs); node == "" && id != "" {
		node = id
		if name, ok := t.nodeIDs[id]; ok {
			node = name
		}
	}
	try := Try{Start: s.Start, End: s.End, Code: s.Code, Error: s.Error, By: s.Component, Node: node, Op: s.Op, Fault: s.Attrs["fault"], id: s.ID, pod: podIn(s.Attrs)}
	v.record(callKey{op, node}, try)
	v.touch(s.Start, s.End)
	return t.claimsOf(v)
}

// stepOp is the operation as calls are kept by, empty for those that no step needs.
func stepOp(op string) string {
	switch op {
	case "CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "NodeStageVolume", "NodeUnstageVolume",
		"NodePublishVolume", "NodeUnpublishVolume", "wait for device":
		return op
	}
	if strings.HasPrefix(op, "mkfs") {
		return "mkfs"
	}
	return ""
}

// podIn finds the pod that a call names: kubelet paths hold the pod's UID.
func podIn(attrs map[string]string) string {
	for _, v := range attrs {
		if _, rest, ok := strings.Cut(v, "/pods/"); ok {
			uid, _, _ := strings.Cut(rest, "/")
			return uid
		}
	}
	return ""
}

// nodeIDIn finds the node that a controller call names by the driver's own id. The
// proxy records requests as JSON, cut off at a bound, so this looks for the one field.
func nodeIDIn(attrs map[string]string) string {
	if id := attrs["node_id"]; id != "" {
		return id
	}
	if _, rest, ok := strings.Cut(attrs["request"], `"node_id":"`); ok {
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	return ""
}

func (t *Tracker) newVolume(name string) *volume {
	v := &volume{name: name, attachments: map[string]*attachment{}, calls: map[callKey]*calls{}}
	t.volumes[name] = v
	return v
}

// adopt moves what was recorded under the handle to the PV that has it.
func (t *Tracker) adopt(v *volume) {
	if v.handle == "" || t.handles[v.handle] == v.name {
		return
	}
	t.handles[v.handle] = v.name
	old := t.volumes[v.handle]
	if old == nil || old == v {
		return
	}
	delete(t.volumes, v.handle)
	for k, c := range old.calls {
		for _, try := range c.tries {
			v.record(k, try)
		}
	}
	v.touch(old.changed, time.Time{})
}

func (t *Tracker) trimOrphans() {
	for len(t.orphans) > maxOrphans {
		if v := t.volumes[t.orphans[0]]; v != nil && v.pv == nil && len(t.claimsOf(v)) == 0 {
			t.drop(v)
		}
		t.orphans = t.orphans[1:]
	}
}

// record adds a try or replaces what is known of it.
func (v *volume) record(k callKey, try Try) {
	c := v.calls[k]
	if c == nil {
		c = &calls{}
		v.calls[k] = c
	}
	for i := range c.tries {
		if c.tries[i].id == try.id {
			if c.tries[i].running() || !try.running() {
				c.tries[i] = try
			}
			return
		}
	}
	i := len(c.tries)
	for i > 0 && c.tries[i-1].Start.After(try.Start) {
		i--
	}
	c.tries = slices.Insert(c.tries, i, try)
	if len(c.tries) > maxTries {
		c.tries = slices.Delete(c.tries, 0, 1)
		c.dropped++
	}
}

func (v *volume) touch(times ...time.Time) {
	for _, at := range times {
		if at.After(v.changed) {
			v.changed = at
		}
	}
}

// tries returns the tries of op on any of the nodes, by start, and how many older ones were dropped.
func (v *volume) tries(op string, nodes ...string) (out []Try, dropped int) {
	if v == nil {
		return nil, 0
	}
	for k, c := range v.calls {
		if k.op == op && (len(nodes) == 0 || slices.Contains(nodes, k.node)) {
			out = append(out, c.tries...)
			dropped += c.dropped
		}
	}
	slices.SortStableFunc(out, func(a, b Try) int { return a.Start.Compare(b.Start) })
	return out, dropped
}

// ever tells whether op has succeeded as far as the record goes.
func (v *volume) ever(op string) bool {
	tries, _ := v.tries(op)
	return slices.ContainsFunc(tries, Try.ok)
}

// last returns which of the ops succeeded last, on any node.
func (v *volume) last(ops ...string) string { return v.lastOn("", ops...) }

func (v *volume) lastOn(node string, ops ...string) string {
	var at time.Time
	name := ""
	for _, op := range ops {
		var tries []Try
		if node == "" {
			tries, _ = v.tries(op)
		} else {
			tries, _ = v.tries(op, node)
			if strings.Contains(op, "Un") { // without a node, it means all of them
				all, _ := v.tries(op, "")
				tries = append(tries, all...)
			}
		}
		for _, try := range tries {
			if try.ok() && !try.End.Before(at) {
				at, name = try.End, op
			}
		}
	}
	return name
}

// nodes are the nodes that calls were about.
func (v *volume) nodes() []string {
	var out []string
	for k := range v.calls {
		if k.node != "" {
			add(&out, k.node)
		}
	}
	return out
}

// nodeless tells whether calls of op were seen that name no node.
func (v *volume) nodeless(op string) bool { return v.calls[callKey{op, ""}] != nil }
