package stages

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Bounds of the record. Beyond them the oldest goes.
const (
	maxTries   = 32   // of one call on one node
	maxUses    = 8    // of one claim
	maxGone    = 500  // lives that have ended
	maxOrphans = 2000 // volumes that no claim or PV is known for
)

// Tracker holds what is known. See the package documentation for its promises.
type Tracker struct {
	clock clock.PassiveClock

	claims  map[Ref]*claim
	byUID   map[types.UID]*claim
	volumes map[string]*volume // by PV name, or by handle while no PV names it
	handles map[string]string  // handle -> PV name
	pods    map[types.UID]podRecord
	nodeIDs map[string]string // a driver's node id -> node name

	over    []Ref    // claims whose life has ended, oldest first
	orphans []string // volumes that were created for a span, oldest first
}

// stamp is a time and how well it is known.
type stamp struct {
	at     time.Time
	coarse bool
}

func (s stamp) zero() bool { return s.at.IsZero() }

// claim is the record of one PersistentVolumeClaim.
type claim struct {
	ref                            Ref
	uid                            types.UID
	class, size, phase, mode       string
	volumeName                     string // spec.volumeName
	provisioner                    bool   // a provisioner was asked for a volume
	isBound                        bool   // at some time; bound may be unknown nevertheless
	created, bound, deleting, gone stamp
	uses                           []*use
	problems, notes                map[Name]problem
	changed                        time.Time
}

// podRecord remembers which claims a pod names.
type podRecord struct{ claims []Ref }

// NewTracker returns an empty tracker. The clock tells when a change was seen.
func NewTracker(c clock.PassiveClock) *Tracker {
	return &Tracker{
		clock: c, claims: map[Ref]*claim{}, byUID: map[types.UID]*claim{}, volumes: map[string]*volume{}, handles: map[string]string{},
		pods: map[types.UID]podRecord{}, nodeIDs: map[string]string{},
	}
}

// Object takes in the current state of an object and returns the claims whose life
// may have changed. Kinds it does not need are ignored. It keeps no reference to obj.
func (t *Tracker) Object(obj runtime.Object) []Ref {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return t.claimSeen(o)
	case *corev1.PersistentVolume:
		return t.volumeSeen(o)
	case *corev1.Pod:
		return t.podSeen(o)
	case *storagev1.VolumeAttachment:
		return t.attachmentSeen(o)
	case *corev1.Event:
		return t.eventSeen(o)
	case *storagev1.CSINode:
		t.csiNodeSeen(o)
	}
	return nil
}

// Deleted takes in that an object is gone; obj is its last known state.
func (t *Tracker) Deleted(obj runtime.Object) []Ref {
	now := stamp{at: t.clock.Now()}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		c := t.claims[Ref{o.Namespace, o.Name}]
		if c == nil || c.uid != o.UID || !c.gone.zero() {
			return nil
		}
		c.gone, c.changed = now, now.at
		if c.deleting.zero() {
			c.deleting = now
		}
		t.settle(c)
		return []Ref{c.ref}
	case *corev1.PersistentVolume:
		v := t.volumes[o.Name]
		if v == nil || v.pv == nil || v.pv.uid != o.UID {
			return nil
		}
		v.pvGone, v.changed, v.pv = now, now.at, nil
		refs := t.claimsOf(v)
		for _, r := range refs {
			t.settle(t.claims[r])
		}
		if len(refs) == 0 {
			t.drop(v)
		}
		return refs
	case *corev1.Pod:
		refs := t.pods[o.UID].claims
		delete(t.pods, o.UID)
		for _, r := range refs {
			c := t.claims[r]
			if c == nil {
				continue
			}
			if u := c.use(o.UID); u != nil && u.gone.zero() {
				u.gone = now
				if u.deleting.zero() {
					u.deleting = now
				}
				c.changed = now.at
			}
			if c.uid == "" && !slices.ContainsFunc(c.uses, func(u *use) bool { return u.gone.zero() }) {
				delete(t.claims, r) // named by pods only, and they are gone
			}
		}
		return refs
	case *storagev1.VolumeAttachment:
		return t.attachmentGone(o, now)
	}
	return nil
}

// Claim returns the life of a claim, false if there is none on record. A claim
// that was deleted stays on record for a while.
func (t *Tracker) Claim(namespace, name string) (Life, bool) {
	c := t.claims[Ref{namespace, name}]
	if c == nil || c.uid == "" {
		return Life{}, false
	}
	return t.life(c), true
}

// Claims returns every life on record, by namespace and name.
func (t *Tracker) Claims() []Life {
	out := make([]Life, 0, len(t.claims))
	for _, c := range t.claims {
		if c.uid != "" {
			out = append(out, t.life(c))
		}
	}
	slices.SortFunc(out, func(a, b Life) int {
		if d := strings.Compare(a.Namespace, b.Namespace); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// VolumeClaim returns the claim that a volume (PV name or handle) belongs to.
func (t *Tracker) VolumeClaim(volume string) (Ref, bool) {
	if refs := t.claimsOf(t.find(volume)); len(refs) > 0 {
		return refs[0], true
	}
	if c := t.byUID[types.UID(strings.TrimPrefix(volume, "pvc-"))]; c != nil {
		return c.ref, true
	}
	return Ref{}, false
}

// seen is the time of something that an object shows now. Of an object whose own
// timestamp is well in the past, that timestamp is the better guess.
func (t *Tracker) seen(own time.Time) stamp {
	now := t.clock.Now()
	if !own.IsZero() && now.Sub(own) > 2*time.Second {
		return stamp{own, true}
	}
	return stamp{now, false}
}

// claimOf returns the record of a claim, making an empty one that waits for its object.
func (t *Tracker) claimOf(r Ref) *claim {
	c := t.claims[r]
	if c == nil {
		c = &claim{ref: r, problems: map[Name]problem{}, notes: map[Name]problem{}}
		t.claims[r] = c
	}
	return c
}

// volumeFor returns the volume of a claim, or nil.
func (t *Tracker) volumeFor(c *claim) *volume {
	if c.volumeName != "" {
		return t.volumes[c.volumeName]
	}
	return t.volumes["pvc-"+string(c.uid)]
}

// claimsOf returns the claim that v is for, as a list of none or one.
func (t *Tracker) claimsOf(v *volume) []Ref {
	if v == nil {
		return nil
	}
	if c := t.byUID[v.claimUID]; c != nil {
		return []Ref{c.ref}
	}
	if uid, ok := strings.CutPrefix(v.name, "pvc-"); ok {
		if c := t.byUID[types.UID(uid)]; c != nil {
			return []Ref{c.ref}
		}
	}
	return nil
}

// find resolves a PV name or a handle.
func (t *Tracker) find(volume string) *volume {
	if name, ok := t.handles[volume]; ok {
		return t.volumes[name]
	}
	return t.volumes[volume]
}

// settle notes that a life may have ended, and forgets the oldest of those that have.
func (t *Tracker) settle(c *claim) {
	if c == nil || c.gone.zero() {
		return
	}
	if v := t.volumeFor(c); v != nil && v.pv != nil {
		return
	}
	if slices.Contains(t.over, c.ref) {
		return
	}
	t.over = append(t.over, c.ref)
	for len(t.over) > maxGone {
		if old := t.claims[t.over[0]]; old != nil && !old.gone.zero() {
			t.forget(old)
		}
		t.over = t.over[1:]
	}
}

func (t *Tracker) forget(c *claim) {
	if v := t.volumeFor(c); v != nil && v.pv == nil {
		t.drop(v)
	}
	delete(t.byUID, c.uid)
	if t.claims[c.ref] == c {
		delete(t.claims, c.ref)
	}
}

func (t *Tracker) drop(v *volume) {
	delete(t.volumes, v.name)
	if t.handles[v.handle] == v.name {
		delete(t.handles, v.handle)
	}
}
