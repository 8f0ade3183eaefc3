package volumemanager

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// maxPodErrors bounds what is remembered of a pod's failures.
const maxPodErrors = 10

// desired is what the node's pods want: volumes, and for each the pods that want it.
type desired struct {
	tell    listener
	mu      sync.RWMutex
	volumes map[UniqueName]*wantedVolume          // guarded by mu
	byPod   map[types.UID]map[UniqueName]struct{} // guarded by mu
	errors  map[types.UID][]string                // guarded by mu
}

type wantedVolume struct {
	name            UniqueName
	plugin          string
	attachable      bool
	deviceMountable bool
	reportedInUse   bool              // node.status.volumesInUse lists it
	label           string            // with which it is mounted
	asked           string            // the label that its first pod asked for, though the node may not mount with it
	size            resource.Quantity // of the PV; zero for other volumes
	pods            map[types.UID]*wantedPod
}

type wantedPod struct {
	pod       *v1.Pod
	spec      *volumeplugin.Spec
	outer     []string // the pod's own names for the volume, sorted
	gid       string
	sizeLimit int64
	requested time.Time
	tried     bool // something was done to bring the volume to the pod
}

// wanted is one pair of pod and volume, copied out of the state.
type wanted struct {
	Volume          UniqueName
	Plugin          string
	Attachable      bool
	DeviceMountable bool
	ReportedInUse   bool
	Label           string
	Pod             *v1.Pod
	Spec            *volumeplugin.Spec
	Outer           []string
	GID             string
	SizeLimit       int64
	Size            resource.Quantity
	Requested       time.Time
	Tried           bool // something was done to bring the volume to the pod
	Anew            bool // each sync of the pod is a request of its own
}

func newDesired(tell listener) *desired {
	return &desired{tell: tell, volumes: map[UniqueName]*wantedVolume{}, byPod: map[types.UID]map[UniqueName]struct{}{}, errors: map[types.UID][]string{}}
}

// entered is what became of a volume's label when a pod came to want it.
type entered struct {
	admitted bool  // the first pod asked for one
	conflict error // pods that have the volume asked for another one
}

// add records that a pod wants a volume under one of its names. What is known
// already about the volume stays; the pod's part is refreshed. A pod that asks for
// another SELinux label than the pods before cannot have it, if they must agree.
func (d *desired) add(w wanted, outer string, l labels) (became entered) {
	d.mu.Lock()
	v := d.volumes[w.Volume]
	if v != nil && v.pods[w.Pod.UID] == nil && l.can && v.asked != l.asked {
		became.conflict = fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", w.Spec.Name(), v.asked, l.asked)
		if l.must {
			d.mu.Unlock()
			return became
		}
	}
	isNew := v == nil
	if isNew {
		v = &wantedVolume{name: w.Volume, plugin: w.Plugin, attachable: w.Attachable, deviceMountable: w.DeviceMountable,
			label: w.Label, asked: l.asked, size: w.Size, pods: map[types.UID]*wantedPod{}}
		d.volumes[w.Volume] = v
		became.admitted = l.asked != ""
	}
	p := &wantedPod{pod: w.Pod, spec: w.Spec, gid: w.GID, sizeLimit: w.SizeLimit, requested: w.Requested, outer: []string{outer}}
	if old := v.pods[w.Pod.UID]; old != nil {
		if p.tried = old.tried; !w.Anew {
			p.requested = old.requested
		}
		if p.outer = slices.Clone(old.outer); !slices.Contains(p.outer, outer) {
			p.outer = append(p.outer, outer)
			slices.Sort(p.outer)
		}
	}
	v.pods[w.Pod.UID] = p
	if d.byPod[w.Pod.UID] == nil {
		d.byPod[w.Pod.UID] = map[UniqueName]struct{}{}
	}
	d.byPod[w.Pod.UID][w.Volume] = struct{}{}
	d.mu.Unlock()
	d.tell.touch(w.Volume)
	d.tell.stir(w.Pod.UID)
	if isNew && w.Attachable {
		d.tell.useMoved()
	}
	return became
}

// remove forgets that a pod wants a volume, and the volume when no pod wants it.
func (d *desired) remove(uid types.UID, name UniqueName) {
	d.mu.Lock()
	moved := false
	if v := d.volumes[name]; v != nil {
		delete(v.pods, uid)
		if len(v.pods) == 0 {
			delete(d.volumes, name)
			moved = v.attachable
		}
	}
	delete(d.byPod[uid], name)
	if len(d.byPod[uid]) == 0 {
		delete(d.byPod, uid)
	}
	delete(d.errors, uid)
	d.mu.Unlock()
	d.tell.touch(name)
	d.tell.stir(uid)
	if moved {
		d.tell.useMoved()
	}
}

// names lists all volumes.
func (d *desired) names() []UniqueName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.volumes))
}

// list returns the pairs of these volumes, by volume as given, then by pod.
func (d *desired) list(names []UniqueName) []wanted {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []wanted
	for _, name := range names {
		v := d.volumes[name]
		if v == nil {
			continue
		}
		for _, uid := range slices.Sorted(maps.Keys(v.pods)) {
			out = append(out, v.pair(v.pods[uid]))
		}
	}
	return out
}

func (v *wantedVolume) pair(p *wantedPod) wanted {
	return wanted{Volume: v.name, Plugin: v.plugin, Attachable: v.attachable, DeviceMountable: v.deviceMountable,
		ReportedInUse: v.reportedInUse, Label: v.label, Pod: p.pod, Spec: p.spec, Outer: p.outer, GID: p.gid,
		SizeLimit: p.sizeLimit, Size: v.size, Requested: p.requested, Tried: p.tried}
}

// pod returns the pairs of one pod.
func (d *desired) pod(uid types.UID) []wanted {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []wanted
	for name := range d.byPod[uid] {
		v := d.volumes[name]
		out = append(out, v.pair(v.pods[uid]))
	}
	return out
}

// markTried records that something is done to bring a volume to a pod.
func (d *desired) markTried(w wanted) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.volumes[w.Volume]; v != nil && v.pods[w.Pod.UID] != nil {
		v.pods[w.Pod.UID].tried = true
	}
}

// wants tells whether a pod wants a volume under this label.
func (d *desired) wants(uid types.UID, name UniqueName, label string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	v := d.volumes[name]
	return v != nil && v.pods[uid] != nil && v.label == label
}

// exists tells whether any pod wants the volume under this label.
func (d *desired) exists(name UniqueName, label string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	v := d.volumes[name]
	return v != nil && v.label == label
}

// wantsInner finds the volume of this inner name that a pod wants.
func (d *desired) wantsInner(uid types.UID, inner string) (UniqueName, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name := range d.byPod[uid] {
		if d.volumes[name].pods[uid].spec.Name() == inner {
			return name, true
		}
	}
	return "", false
}

// attachables lists the volumes that need attachment.
func (d *desired) attachables() []UniqueName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []UniqueName
	for name, v := range d.volumes {
		if v.attachable {
			out = append(out, name)
		}
	}
	return out
}

// markNotAttachable records that a volume's driver needs no attachment any more.
func (d *desired) markNotAttachable(name UniqueName) {
	d.mu.Lock()
	if v := d.volumes[name]; v != nil {
		v.attachable = false
	}
	d.mu.Unlock()
	d.tell.touch(name)
	d.tell.useMoved()
}

// markReported takes over which volumes node.status.volumesInUse lists.
func (d *desired) markReported(names []UniqueName) {
	listed := make(map[UniqueName]bool, len(names))
	for _, n := range names {
		listed[n] = true
	}
	d.mu.Lock()
	var changed []UniqueName
	for _, v := range d.volumes {
		if in := listed[v.name]; in != v.reportedInUse {
			v.reportedInUse, changed = in, append(changed, v.name)
		}
	}
	d.mu.Unlock()
	if len(changed) > 0 {
		d.tell.touch(changed...)
	}
}

// addError remembers why a pod's volumes do not come up; the pod's wait ends with it.
func (d *desired) addError(uid types.UID, err error) {
	d.mu.Lock()
	s := err.Error()
	isNew := !slices.Contains(d.errors[uid], s) && len(d.errors[uid]) < maxPodErrors
	if isNew {
		d.errors[uid] = append(d.errors[uid], s)
		slices.Sort(d.errors[uid])
	}
	d.mu.Unlock()
	if isNew {
		d.tell.touchPod(uid)
	}
}

// popErrors returns what was remembered and forgets it.
func (d *desired) popErrors(uid types.UID) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.errors[uid]
	delete(d.errors, uid)
	return e
}

// podsKnown is every pod that wants a volume or has an error.
func (d *desired) podsKnown() map[types.UID]struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := map[types.UID]struct{}{}
	for uid := range d.byPod {
		out[uid] = struct{}{}
	}
	for uid := range d.errors {
		out[uid] = struct{}{}
	}
	return out
}

func (w wanted) String() string {
	return fmt.Sprintf("volume %s of pod %s/%s", w.Volume, w.Pod.Namespace, w.Pod.Name)
}
