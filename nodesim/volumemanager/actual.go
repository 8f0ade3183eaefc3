package volumemanager

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// DeviceState is the state of a volume's own mount on the node.
//
//	NotMounted --MountDevice ok--> GloballyMounted --UnmountDevice ok--> NotMounted
//	NotMounted --uncertain error--> Uncertain --MountDevice ok--> GloballyMounted
//	Uncertain --final error, unless found on disk--> NotMounted
//	any --UnmountDevice error--> Uncertain
type DeviceState string

// The device states.
const (
	DeviceNotMounted      DeviceState = "NotMounted"
	DeviceGloballyMounted DeviceState = "GloballyMounted"
	DeviceUncertain       DeviceState = "Uncertain"
)

// MountState is the state of a volume in one pod; a pod that has no entry has it not mounted.
//
//	(absent) --SetUp ok--> Mounted --TearDown ok--> (absent)
//	(absent) --uncertain error--> Uncertain --SetUp ok--> Mounted
//	Uncertain --final error, unless found on disk--> (absent)
//	any --TearDown error--> Uncertain
type MountState string

// The mount states.
const (
	NotMounted MountState = "NotMounted"
	Mounted    MountState = "Mounted"
	Uncertain  MountState = "Uncertain"
)

// Attachability of a volume: whether a controller attaches and detaches it.
type Attachability string

// What is known of it. It is Unknown for what was found on disk until the node's status was read.
const (
	Attachable        Attachability = "True"
	NotAttachable     Attachability = "False"
	AttachUnconfirmed Attachability = "Uncertain"
)

// actual is what is up on the node. A volume that has an entry is attached.
type actual struct {
	tell    listener
	mu      sync.RWMutex
	volumes map[UniqueName]*haveVolume            // guarded by mu
	byPod   map[types.UID]map[UniqueName]*havePod // guarded by mu: the entries of the volumes once more
	failed  map[UniqueName]bool                   // guarded by mu: an expansion ended with a final error
}

type haveVolume struct {
	name       UniqueName
	spec       *volumeplugin.Spec
	plugin     string
	attach     Attachability
	devicePath string
	mountPath  string
	device     DeviceState
	size       resource.Quantity // what the claim had when the volume was attached, or has been expanded to; zero if not known
	inUse      bool              // the driver does not expand it while it is in use
	label      *string           // nil until something was mounted
	found      bool              // the device was found on disk and has not been mounted in this life
	pods       map[types.UID]*havePod
}

type havePod struct {
	state   MountState
	spec    *volumeplugin.Spec
	path    string
	gid     string
	remount bool
	found   bool // found on disk and not mounted in this life
}

// have is one volume copied out of the state.
type have struct {
	Volume     UniqueName
	Spec       *volumeplugin.Spec
	Plugin     string
	Attach     Attachability
	DevicePath string
	MountPath  string
	Device     DeviceState
	Label      string
	Size       resource.Quantity
}

// mountedVolume is one pair of pod and volume copied out of the state.
type mountedVolume struct {
	have
	UID   types.UID
	State MountState
	Inner string
	Spec  *volumeplugin.Spec
	Path  string
	GID   string
}

func newActual(tell listener) *actual {
	return &actual{tell: tell, volumes: map[UniqueName]*haveVolume{}, byPod: map[types.UID]map[UniqueName]*havePod{}, failed: map[UniqueName]bool{}}
}

func (v *haveVolume) copy() have {
	h := have{Volume: v.name, Spec: v.spec, Plugin: v.plugin, Attach: v.attach, DevicePath: v.devicePath, MountPath: v.mountPath, Device: v.device, Size: v.size}
	if v.label != nil {
		h.Label = *v.label
	}
	return h
}

// mayBeMounted: the device must be taken down before the volume can be forgotten.
func (h have) mayBeMounted() bool {
	return h.Device == DeviceGloballyMounted || h.Device == DeviceUncertain
}

// need is what is missing for a pod to have a volume.
type need int

const (
	needNothing need = iota
	needAttach
	needOtherLabel
	needMount
	needRemount
	needResize
)

// answer is what a wanted pair needs, and what is known of the volume.
type answer struct {
	need       need
	devicePath string
	size       resource.Quantity
}

// ask answers what a wanted pair needs.
func (a *actual) ask(w wanted) answer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	v := a.volumes[w.Volume]
	if v == nil {
		return answer{need: needAttach}
	}
	out := answer{devicePath: v.devicePath, size: v.size}
	p := v.pods[w.Pod.UID]
	switch {
	case v.label != nil && *v.label != w.Label:
		out.need = needOtherLabel
	case p == nil || p.state == Uncertain:
		out.need = needMount
	case p.remount:
		out.need = needRemount
	case !v.inUse && !v.size.IsZero() && w.Size.Cmp(v.size) > 0:
		out.need = needResize
	}
	return out
}

// change runs f on a volume's entry, and tells everybody.
func (a *actual) change(name UniqueName, f func(*haveVolume)) error {
	a.mu.Lock()
	v := a.volumes[name]
	if v != nil {
		f(v)
	}
	a.mu.Unlock()
	if v == nil {
		return fmt.Errorf("no volume with the name %q exists in the list of attached volumes", name)
	}
	a.tell.touch(name)
	return nil
}

// markAttached enters a volume; of one that has an entry only the device path changes.
func (a *actual) markAttached(name UniqueName, spec *volumeplugin.Spec, plugin, devicePath string, attach Attachability) {
	a.mu.Lock()
	v := a.volumes[name]
	isNew := v == nil
	if isNew {
		v = &haveVolume{name: name, spec: spec, plugin: plugin, attach: attach, device: DeviceNotMounted, pods: map[types.UID]*havePod{}}
		a.volumes[name] = v
	}
	v.devicePath = devicePath
	a.mu.Unlock()
	a.tell.touch(name)
	if isNew && attach == Attachable {
		a.tell.useMoved()
	}
}

// markDetached forgets a volume that no pod has.
func (a *actual) markDetached(name UniqueName) error {
	a.mu.Lock()
	defer a.tell.useMoved()
	defer a.tell.touch(name)
	defer a.mu.Unlock()
	if v := a.volumes[name]; v != nil && len(v.pods) > 0 {
		return fmt.Errorf("volume %q is still mounted by %d pods", name, len(v.pods))
	}
	delete(a.volumes, name)
	return nil
}

// markDevice records the state of the device. Path and label change only if they are given.
func (a *actual) markDevice(name UniqueName, state DeviceState, devicePath, mountPath, label string) error {
	return a.change(name, func(v *haveVolume) {
		v.device, v.mountPath = state, mountPath
		if devicePath != "" {
			v.devicePath = devicePath
		}
		if state == DeviceGloballyMounted {
			v.found = false
		}
		if label != "" {
			v.label = &label
		}
	})
}

// markFoundDevice records a device that was found on disk.
func (a *actual) markFoundDevice(name UniqueName, mountPath, label string) error {
	return a.change(name, func(v *haveVolume) {
		v.device, v.mountPath, v.found = DeviceUncertain, mountPath, true
		if label != "" {
			v.label = &label
		}
	})
}

// markDeviceUnmounted records that the device is down.
func (a *actual) markDeviceUnmounted(name UniqueName) error {
	return a.change(name, func(v *haveVolume) { v.device, v.mountPath, v.found = DeviceNotMounted, "", false })
}

// mark is what is recorded of a pod's mount.
type mark struct {
	uid   types.UID
	spec  *volumeplugin.Spec
	path  string
	gid   string
	label string
	found bool
}

// markMount records a pod's mount. An uncertain entry is overwritten as a whole; of a
// mounted one only what is new changes.
func (a *actual) markMount(name UniqueName, state MountState, m mark) error {
	defer a.tell.stir(m.uid)
	return a.change(name, func(v *haveVolume) {
		p := v.pods[m.uid]
		if p == nil || p.state == Uncertain {
			found := m.found || p != nil && p.found
			p = &havePod{spec: m.spec, gid: m.gid, path: m.path, found: found}
			a.enter(v, m.uid, p)
		}
		if m.path != "" {
			p.path = m.path
		}
		p.state, p.remount = state, false
		if state == Mounted {
			p.found = false
		}
		if v.label == nil {
			v.label = &m.label
		}
	})
}

// enter puts a pod's entry in. The caller holds mu.
func (a *actual) enter(v *haveVolume, uid types.UID, p *havePod) {
	v.pods[uid] = p
	if a.byPod[uid] == nil {
		a.byPod[uid] = map[UniqueName]*havePod{}
	}
	a.byPod[uid][v.name] = p
}

// markUnmounted drops a pod's entry.
func (a *actual) markUnmounted(name UniqueName, uid types.UID) error {
	defer a.tell.stir(uid)
	return a.change(name, func(v *haveVolume) {
		delete(v.pods, uid)
		delete(a.byPod[uid], name)
		if len(a.byPod[uid]) == 0 {
			delete(a.byPod, uid)
		}
	})
}

// requireRemount asks for another SetUp of a pod's volumes of which pick is true.
func (a *actual) requireRemount(uid types.UID, pick func(*volumeplugin.Spec) bool) {
	a.mu.Lock()
	var picked []UniqueName
	for name, p := range a.byPod[uid] {
		if pick(p.spec) {
			p.remount, picked = true, append(picked, name)
		}
	}
	a.mu.Unlock()
	if len(picked) > 0 {
		a.tell.touch(picked...)
	}
}

// confirm takes over what the node's status says of a volume that was found on disk.
func (a *actual) confirm(name UniqueName, attached bool, devicePath string) {
	a.mu.Lock()
	if v := a.volumes[name]; v != nil && v.attach == AttachUnconfirmed {
		v.attach = NotAttachable
		if attached {
			v.attach = Attachable
			if v.device == DeviceUncertain {
				v.devicePath = devicePath
			}
		}
	}
	a.mu.Unlock()
	a.tell.touch(name)
	a.tell.useMoved()
}

// get returns a volume.
func (a *actual) get(name UniqueName) (have, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	v := a.volumes[name]
	if v == nil {
		return have{}, false
	}
	return v.copy(), true
}

// pair returns a pod's mount state, and whether pod or device were only found on disk.
func (a *actual) pair(name UniqueName, uid types.UID) (state MountState, podFound, deviceFound bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	v := a.volumes[name]
	if v == nil {
		return NotMounted, false, false
	}
	if p := v.pods[uid]; p != nil {
		return p.state, p.found, v.found
	}
	return NotMounted, false, v.found
}

// pathFor is where a pod finds a volume that is mounted for it.
func (a *actual) pathFor(name UniqueName, uid types.UID) (string, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if v := a.volumes[name]; v != nil && v.pods[uid] != nil {
		return v.pods[uid].path, v.pods[uid].state == Mounted
	}
	return "", false
}

// elsewhere tells whether another pod has or may have the volume.
func (a *actual) elsewhere(name UniqueName, uid types.UID) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	v := a.volumes[name]
	if v == nil {
		return false
	}
	for id := range v.pods {
		if id != uid {
			return true
		}
	}
	return false
}

// names lists all volumes.
func (a *actual) names() []UniqueName {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Collect(maps.Keys(a.volumes))
}

// mounts lists the pairs of these volumes, mounted or uncertain, by volume as given and pod.
func (a *actual) mounts(names []UniqueName) []mountedVolume {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []mountedVolume
	for _, name := range names {
		v := a.volumes[name]
		if v == nil {
			continue
		}
		for _, uid := range slices.Sorted(maps.Keys(v.pods)) {
			p := v.pods[uid]
			out = append(out, mountedVolume{have: v.copy(), UID: uid, State: p.state, Inner: p.spec.Name(), Spec: p.spec, Path: p.path, GID: p.gid})
		}
	}
	return out
}

// list returns these volumes as far as they are there.
func (a *actual) list(names []UniqueName) []have {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []have
	for _, name := range names {
		if v := a.volumes[name]; v != nil {
			out = append(out, v.copy())
		}
	}
	return out
}

// idle tells whether no pod has the volume.
func (a *actual) idle(name UniqueName) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	v := a.volumes[name]
	return v != nil && len(v.pods) == 0
}

// attachables lists the volumes that are attached by a controller.
func (a *actual) attachables() []UniqueName {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []UniqueName
	for name, v := range a.volumes {
		if v.attach == Attachable {
			out = append(out, name)
		}
	}
	return out
}

// groups are the gids of the volumes that are mounted for a pod, as they were given.
func (a *actual) groups(uid types.UID) []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []string
	for _, p := range a.byPod[uid] {
		if p.state == Mounted && p.gid != "" {
			out = append(out, p.gid)
		}
	}
	return out
}

// podMounts counts a pod's entries by state.
func (a *actual) podMounts(uid types.UID) (mounted, uncertain []UniqueName) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for name, p := range a.byPod[uid] {
		if p.state == Mounted {
			mounted = append(mounted, name)
		} else {
			uncertain = append(uncertain, name)
		}
	}
	return mounted, uncertain
}
