package web

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/stages"
)

// nodeObject is what the page has of a node.
type nodeObject struct {
	Key   string `json:"key"`
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Reason says why a node is not ready, or what keeps pods away from it.
	Reason  string         `json:"reason,omitempty"`
	Drivers []driverObject `json:"drivers"`
	Volumes []nodeVolume   `json:"volumes"`
}

type driverObject struct {
	Name   string `json:"name"`
	NodeID string `json:"nodeID"`
	Limit  *int32 `json:"limit,omitempty"`
}

// nodeVolume is one volume as it stands on a node.
type nodeVolume struct {
	Claim string `json:"claim,omitempty"` // namespace/name; empty where the volume has no claim
	PV    string `json:"pv"`
	// Attach is "attached", "attaching", "detaching", "failed", or empty without an attachment.
	Attach string `json:"attach,omitempty"`
	Error  string `json:"error,omitempty"`
	// Device is how far it is on the node: "staging", "staged", "unstaging", or empty.
	Device string   `json:"device,omitempty"`
	Pods   []podUse `json:"pods"`
	// Since is when the attachment was made.
	Since time.Time `json:"since,omitzero"`
}

// podUse is one pod's share of it.
type podUse struct {
	Name  string `json:"name"`
	Mount string `json:"mount"` // "published", "publishing", "unpublishing", "failed"; "waiting" before any of them
}

func (m *model) nodeObject(name string) (any, bool) {
	n := m.nodes[name]
	if n == nil || n.node == nil {
		if n != nil && n.csi == nil && len(n.attachments) == 0 && len(n.claims) == 0 {
			delete(m.nodes, name)
		}
		return nil, false
	}
	o := nodeObject{Key: "node/" + name, Name: name, Drivers: []driverObject{}, Volumes: []nodeVolume{}}
	o.Ready, o.Reason = readiness(n.node)
	if n.csi != nil {
		for _, d := range n.csi.Spec.Drivers {
			out := driverObject{Name: d.Name, NodeID: d.NodeID}
			if d.Allocatable != nil {
				out.Limit = d.Allocatable.Count
			}
			o.Drivers = append(o.Drivers, out)
		}
	}
	byPV := map[string]*nodeVolume{}
	get := func(pv string) *nodeVolume {
		if byPV[pv] == nil {
			byPV[pv] = &nodeVolume{PV: pv, Pods: []podUse{}}
		}
		return byPV[pv]
	}
	for _, va := range n.attachments {
		if va.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		v := get(*va.Spec.Source.PersistentVolumeName)
		v.Since = va.CreationTimestamp.Time
		if ref, ok := m.tracker.VolumeClaim(v.PV); ok {
			v.Claim = ref.String()
		}
		switch {
		case va.DeletionTimestamp != nil && va.Status.DetachError != nil:
			v.Attach, v.Error = "failed", va.Status.DetachError.Message
		case va.DeletionTimestamp != nil:
			v.Attach = "detaching"
		case va.Status.Attached:
			v.Attach = "attached"
		case va.Status.AttachError != nil:
			v.Attach, v.Error = "failed", va.Status.AttachError.Message
		default:
			v.Attach = "attaching"
		}
	}
	for ref := range n.claims {
		life := m.lives[ref]
		if life.PV == "" {
			continue
		}
		for _, u := range life.Uses {
			if u.Node == name && !u.Over {
				v := get(life.PV)
				v.Claim = ref.String()
				v.mounted(u)
			}
		}
	}
	for _, pv := range slices.Sorted(maps.Keys(byPV)) {
		o.Volumes = append(o.Volumes, *byPV[pv])
	}
	return o, true
}

// mounted adds what a use tells about the volume on its node.
func (v *nodeVolume) mounted(u stages.Use) {
	step := map[stages.Name]stages.State{}
	for _, s := range u.Steps {
		step[s.Name] = s.State
	}
	switch {
	case step[stages.Unstaged] == stages.Active:
		v.Device = "unstaging"
	case step[stages.Staged].Over() && !step[stages.Unstaged].Over():
		v.Device = "staged"
	case step[stages.Staged] == stages.Active && v.Device == "":
		v.Device = "staging"
	}
	use := podUse{Name: u.Pod, Mount: "waiting"}
	switch {
	case step[stages.Unpublished].Over():
		return
	case step[stages.Unpublished] == stages.Failed || step[stages.Published] == stages.Failed:
		use.Mount = "failed"
	case step[stages.Unpublished] == stages.Active:
		use.Mount = "unpublishing"
	case step[stages.Published].Over():
		use.Mount = "published"
	case step[stages.Published] == stages.Active:
		use.Mount = "publishing"
	}
	v.Pods = append(v.Pods, use)
}

// readiness is a node's Ready condition, and in words what is wrong with it.
func readiness(n *corev1.Node) (bool, string) {
	ready, reason := false, "it has not reported yet"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready, reason = c.Status == corev1.ConditionTrue, c.Message
		}
	}
	if ready {
		reason = ""
	}
	if n.Spec.Unschedulable && reason == "" {
		reason = "cordoned: no new pods"
	}
	for _, t := range n.Spec.Taints {
		if t.Key == "node.kubernetes.io/out-of-service" {
			reason = "out of service"
		}
	}
	return ready, reason
}
