package web

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/stages"
)

// model turns what is observed into the page's objects. One goroutine owns it.
//
// Changes only mark what they touch; publish derives the marked objects. So a burst
// of changes of one volume costs one derivation.
type model struct {
	cfg     Config
	hub     *hub
	tracker *stages.Tracker
	started time.Time

	lives   map[stages.Ref]stages.Life
	nodes   map[string]*nodeRecord
	classes map[string]classObject

	marked map[string]func() (any, bool) // by key: what to derive; false deletes the object
	log    journal
}

// nodeRecord is what the API tells about a node.
type nodeRecord struct {
	node        *corev1.Node
	csi         *storagev1.CSINode
	attachments map[string]*storagev1.VolumeAttachment
	claims      map[stages.Ref]bool // lives that have a use here
}

type classObject struct {
	Name        string `json:"name"`
	Provisioner string `json:"provisioner"`
	Binding     string `json:"binding"`
	Default     bool   `json:"default"`
}

// volumeObject is what the page has of one claim.
type volumeObject struct {
	Key  string      `json:"key"`
	Life stages.Life `json:"life"`
}

// clusterObject is about everything at once.
type clusterObject struct {
	Key      string                `json:"key"`
	Name     string                `json:"name"`
	Mode     string                `json:"mode"`
	Reason   string                `json:"reason"`
	Version  string                `json:"version"`
	Started  time.Time             `json:"started"`
	Volumes  map[stages.Health]int `json:"volumes"`
	Nodes    int                   `json:"nodes"`
	NotReady int                   `json:"notReady"`
	Classes  []classObject         `json:"classes"`
}

func newModel(cfg Config, h *hub) *model {
	m := &model{
		cfg: cfg, hub: h, tracker: stages.NewTracker(cfg.Lab.Clock), started: cfg.Lab.Clock.Now(),
		lives: map[stages.Ref]stages.Life{}, nodes: map[string]*nodeRecord{}, classes: map[string]classObject{},
		marked: map[string]func() (any, bool){}, log: newJournal(),
	}
	m.markCluster()
	return m
}

func (m *model) object(c observed) {
	var touched []stages.Ref
	if c.gone {
		touched = m.tracker.Deleted(c.obj)
	} else {
		touched = m.tracker.Object(c.obj)
	}
	m.markVolumes(touched)
	switch o := c.obj.(type) {
	case *storagev1.StorageClass:
		m.class(o, c.gone)
	case *corev1.Node:
		n := m.node(o.Name)
		n.node = o
		if c.gone {
			n.node = nil
		}
		m.markNode(o.Name)
		m.markCluster()
	case *storagev1.CSINode:
		n := m.node(o.Name)
		n.csi = o
		if c.gone {
			n.csi = nil
		}
		m.markNode(o.Name)
	case *storagev1.VolumeAttachment:
		n := m.node(o.Spec.NodeName)
		n.attachments[o.Name] = o
		if c.gone {
			delete(n.attachments, o.Name)
		}
		m.markNode(o.Spec.NodeName)
	case *corev1.Event:
		if !c.gone {
			m.log.event(o, touched)
		}
	}
}

func (m *model) spans(all []lab.Span) {
	for _, s := range all {
		m.span(s)
	}
}

func (m *model) span(s lab.Span) {
	m.markVolumes(m.tracker.Span(s))
	ref, ok := m.tracker.VolumeClaim(s.Volume)
	m.log.span(s, ref, ok)
}

func (m *model) class(o *storagev1.StorageClass, gone bool) {
	c := classObject{Name: o.Name, Provisioner: o.Provisioner, Default: o.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"}
	if o.VolumeBindingMode != nil {
		c.Binding = string(*o.VolumeBindingMode)
	}
	m.classes[o.Name] = c
	if gone {
		delete(m.classes, o.Name)
	}
	m.markCluster()
}

func (m *model) node(name string) *nodeRecord {
	n := m.nodes[name]
	if n == nil {
		n = &nodeRecord{attachments: map[string]*storagev1.VolumeAttachment{}, claims: map[stages.Ref]bool{}}
		m.nodes[name] = n
	}
	return n
}

func (m *model) markVolumes(refs []stages.Ref) {
	for _, r := range refs {
		m.marked["volume/"+r.String()] = func() (any, bool) { return m.volume(r) }
	}
}

func (m *model) markNode(name string) {
	m.marked["node/"+name] = func() (any, bool) { return m.nodeObject(name) }
}

func (m *model) markCluster() {
	m.marked["cluster"] = func() (any, bool) { return m.cluster(), true }
}

// volume derives a life, and marks what shows parts of it.
func (m *model) volume(r stages.Ref) (any, bool) {
	before, had := m.lives[r]
	life, ok := m.tracker.Claim(r.Namespace, r.Name)
	for _, u := range slices.Concat(before.Uses, life.Uses) {
		if u.Node != "" {
			delete(m.node(u.Node).claims, r)
			m.markNode(u.Node)
		}
	}
	if !ok {
		delete(m.lives, r)
	} else {
		m.lives[r] = life
		for _, u := range life.Uses {
			if u.Node != "" && !u.Over {
				m.node(u.Node).claims[r] = true
			}
		}
	}
	if had != ok || before.Health != life.Health {
		m.markCluster()
	}
	return volumeObject{"volume/" + r.String(), slimLife(life)}, ok
}

func (m *model) cluster() clusterObject {
	mode, reason, _ := strings.Cut(m.cfg.Mode, ":")
	c := clusterObject{
		Key: "cluster", Name: m.cfg.ClusterName, Mode: mode, Reason: strings.TrimSpace(reason), Version: m.cfg.Version, Started: m.started,
		Volumes: map[stages.Health]int{}, Classes: []classObject{},
	}
	for _, l := range m.lives {
		c.Volumes[l.Health]++
	}
	for _, n := range m.nodes {
		if n.node != nil {
			c.Nodes++
			if ready, _ := readiness(n.node); !ready {
				c.NotReady++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.classes)) {
		c.Classes = append(c.Classes, m.classes[name])
	}
	return c
}

func (m *model) dirty() bool { return len(m.marked) > 0 || m.log.pending() }

// ready is called once everything that existed at the start has been taken in.
func (m *model) ready() { m.log.sortFirst() }

// publishJournal hands on the journal alone; what is marked stays so.
func (m *model) publishJournal() { m.hub.publish(nil, nil, m.log.take()) }

// publish derives what is marked and hands it to the hub.
func (m *model) publish() {
	put, del := map[string]json.RawMessage{}, []string{}
	// Volumes mark nodes and the cluster, so those come after them.
	for _, kind := range []string{"volume/", "node/", "cluster"} {
		for key, derive := range m.marked {
			if !strings.HasPrefix(key, kind) {
				continue
			}
			delete(m.marked, key)
			obj, ok := derive()
			if !ok {
				del = append(del, key)
				continue
			}
			data, err := json.Marshal(obj)
			if err != nil {
				m.cfg.Log.Error().Err(err).Str("key", key).Msg("write an object of the dashboard")
				continue
			}
			put[key] = data
		}
	}
	m.hub.publish(put, del, m.log.take())
}

// wireUses is how many uses of a volume the page is told of.
const wireUses = 3

// slimLife leaves out what the page can do without, since a cluster may have
// thousands of volumes: old uses, labels that follow from names, and the tries of
// steps that took one.
func slimLife(l stages.Life) stages.Life {
	l.Provision, l.End = slimSteps(l.Provision), slimSteps(l.End)
	if n := len(l.Uses); n > wireUses {
		l.Uses = l.Uses[n-wireUses:]
	}
	l.Uses = slices.Clone(l.Uses)
	for i := range l.Uses {
		l.Uses[i].Steps = slimSteps(l.Uses[i].Steps)
	}
	return l
}

func slimSteps(steps []stages.Step) []stages.Step {
	out := slices.Clone(steps)
	for i := range out {
		out[i].Label = ""
		if out[i].Attempts <= 1 {
			out[i].Tries = nil
		}
	}
	return out
}
