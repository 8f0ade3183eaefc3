package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Charge is something in the cloud that no Kubernetes object justifies, and what it
// costs in a month at public list price, in US dollars. An attachment costs nothing
// by itself.
type Charge struct {
	Kind  string  `json:"kind"` // volume, snapshot, attachment, droplet
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Why   string  `json:"why"`
	Month float64 `json:"usdMonth"`
}

func (c Charge) String() string {
	price := ""
	if c.Month > 0 {
		price = fmt.Sprintf(" ($%.2f a month)", c.Month)
	}
	return fmt.Sprintf("leak: %s %s: %s%s", c.Kind, c.Name, c.Why, price)
}

// Total is what charges cost together.
func Total(charges []Charge) (usd float64) {
	for _, c := range charges {
		usd += c.Month
	}
	return usd
}

// CloudItem is a snapshot or a droplet as the cloud's API tells it.
type CloudItem struct {
	ID, Name string
	Month    float64
}

// Holdings are what the cloud has beside volumes, and what justifies it.
type Holdings struct {
	Snapshots []CloudItem
	Droplets  []CloudItem
	// Handles are the snapshots that VolumeSnapshotContents name.
	Handles []string
	// Nodes are the names of the Node objects.
	Nodes []string
}

// Account lists what nothing justifies: a volume without a PersistentVolume of its id
// and without a claim that is having it made, a snapshot without a VolumeSnapshotContent,
// an attachment without a VolumeAttachment, a droplet without a Node. Like Compare it
// judges one instant.
func Account(inv Inventory, h Holdings) (out []Charge) {
	c := newComparison(inv)
	nodes := map[string]bool{}
	for _, n := range h.Nodes {
		nodes[n] = true
	}
	for _, v := range inv.Cloud {
		pv := c.byHandle[v.ID]
		if uid, dynamic := strings.CutPrefix(v.Name, "pvc-"); pv == nil && (!dynamic || c.claims[uid] == nil) {
			out = append(out, Charge{"volume", v.ID, v.Name, "no persistent volume and no claim has it", v.Month})
		}
		for _, d := range v.Droplets {
			if !c.attached[v.ID+"@"+d] {
				out = append(out, Charge{Kind: "attachment", ID: v.ID + "@" + d, Name: v.Name + " to " + d, Why: "no volume attachment says so"})
			}
		}
	}
	for _, s := range h.Snapshots {
		if !slices.Contains(h.Handles, s.ID) {
			out = append(out, Charge{"snapshot", s.ID, s.Name, "no volume snapshot content has it", s.Month})
		}
	}
	for _, d := range h.Droplets {
		if !nodes[d.Name] {
			out = append(out, Charge{"droplet", d.ID, d.Name, "no node is it", d.Month})
		}
	}
	slices.SortFunc(out, func(a, b Charge) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return out
}
