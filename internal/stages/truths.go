package stages

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Truths are the three accounts of where a volume is: what is wanted, what the
// API has on record, and what the last successful calls to the driver left
// behind. They disagree for a moment on every change; a disagreement that
// lasts is what goes wrong in practice.
type Truths struct {
	Desired  Placement `json:"desired"`  // pods that name the claim
	Recorded Placement `json:"recorded"` // PV, VolumeAttachments
	Actual   Placement `json:"actual"`   // answered CSI calls
	// Mismatch says in words where they disagree; empty when they agree.
	Mismatch []string `json:"mismatch,omitempty"`
	// Since is when the latest change happened that left the mismatch.
	Since time.Time `json:"since,omitzero"`
}

// Placement is where a volume is, by one account. Lists are sorted node names.
type Placement struct {
	Exists    bool     `json:"exists"`
	Attached  []string `json:"attached"`
	Published []string `json:"published"`
}

// truths compares the accounts. It is only about volumes that are attached through the API.
func (t *Tracker) truths(c *claim, v *volume) Truths {
	var tr Truths
	tr.Desired = Placement{Exists: c.gone.zero(), Attached: []string{}, Published: []string{}}
	tr.Recorded = Placement{Exists: v != nil && v.pv != nil, Attached: []string{}, Published: []string{}}
	tr.Actual = Placement{Attached: []string{}, Published: []string{}}
	for _, u := range c.uses {
		if u.node == "" || !u.gone.zero() || u.stopped() {
			continue
		}
		add(&tr.Desired.Attached, u.node)
		add(&tr.Desired.Published, u.node)
		if u.ran {
			add(&tr.Recorded.Published, u.node)
		}
	}
	if v == nil {
		return tr
	}
	for node, a := range v.attachments {
		if a.gone.zero() && a.attached {
			add(&tr.Recorded.Attached, node)
		}
	}
	tr.Actual.Exists = v.last("CreateVolume", "DeleteVolume") != "DeleteVolume" && (v.pv != nil || v.ever("CreateVolume"))
	for _, node := range v.nodes() {
		if v.lastOn(node, "ControllerPublishVolume", "ControllerUnpublishVolume") == "ControllerPublishVolume" {
			add(&tr.Actual.Attached, node)
		}
		if v.lastOn(node, "NodePublishVolume", "NodeUnpublishVolume") == "NodePublishVolume" {
			add(&tr.Actual.Published, node)
		}
	}
	// Only ask the calls where calls were seen: after a restart the record is empty.
	if (v.ever("ControllerPublishVolume") || v.ever("ControllerUnpublishVolume")) && !v.nodeless("ControllerPublishVolume") {
		compare(&tr.Mismatch, "attached", "recorded", tr.Recorded.Attached, "actual", tr.Actual.Attached)
	}
	if len(v.attachments) > 0 { // else the driver may need no attach
		compare(&tr.Mismatch, "attached", "desired", tr.Desired.Attached, "recorded", tr.Recorded.Attached)
	}
	if len(tr.Mismatch) > 0 {
		tr.Since = v.changed
		if c.changed.After(tr.Since) {
			tr.Since = c.changed
		}
	}
	return tr
}

func compare(out *[]string, what, nameA string, a []string, nameB string, b []string) {
	if !slices.Equal(a, b) {
		*out = append(*out, fmt.Sprintf("%s: %s %s, %s %s", what, nameA, places(a), nameB, places(b)))
	}
}

func places(nodes []string) string {
	if len(nodes) == 0 {
		return "nowhere"
	}
	return "on " + strings.Join(nodes, ", ")
}

func add(list *[]string, s string) {
	if i, found := slices.BinarySearch(*list, s); !found {
		*list = slices.Insert(*list, i, s)
	}
}
