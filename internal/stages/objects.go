package stages

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annProvisionedBy   = "pv.kubernetes.io/provisioned-by"
)

func (t *Tracker) claimSeen(o *corev1.PersistentVolumeClaim) []Ref {
	ref := Ref{o.Namespace, o.Name}
	c := t.claimOf(ref)
	if c.uid != "" && c.uid != o.UID {
		// A new claim of an old name: a new life.
		waiting := c.uses
		t.forget(c)
		c = t.claimOf(ref)
		for _, u := range waiting {
			if u.gone.zero() {
				c.uses = append(c.uses, u)
			}
		}
	}
	now := t.clock.Now()
	first := c.uid == ""
	if first {
		c.uid, c.created = o.UID, t.seen(o.CreationTimestamp.Time)
		t.byUID[o.UID] = c
	}
	c.changed = now
	c.class, c.mode, c.phase = "", "Filesystem", string(o.Status.Phase)
	if o.Spec.StorageClassName != nil {
		c.class = *o.Spec.StorageClassName
	}
	if o.Spec.VolumeMode != nil {
		c.mode = string(*o.Spec.VolumeMode)
	}
	size := o.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = o.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	c.size = size.String()
	c.volumeName = o.Spec.VolumeName
	c.provisioner = o.Annotations[annProvisioner] != "" || o.Annotations[annProvisionerBeta] != ""
	if o.Status.Phase == corev1.ClaimBound && !c.isBound {
		c.isBound, c.bound = true, transition(first && c.created.coarse, now)
	}
	if o.DeletionTimestamp != nil && c.deleting.zero() {
		c.deleting = t.seen(o.DeletionTimestamp.Time)
	}
	return []Ref{ref}
}

func (t *Tracker) volumeSeen(o *corev1.PersistentVolume) []Ref {
	v := t.volumes[o.Name]
	if v == nil {
		v = t.newVolume(o.Name)
	}
	before := t.claimsOf(v)
	if v.pv == nil || v.pv.uid != o.UID {
		v.pvSeen, v.pvGone, v.released, v.problem = t.seen(o.CreationTimestamp.Time), stamp{}, stamp{}, problem{}
	}
	if o.Spec.ClaimRef != nil && o.Spec.ClaimRef.UID != "" {
		v.claimUID = o.Spec.ClaimRef.UID
	}
	v.pv = &pvRecord{
		uid: o.UID, phase: string(o.Status.Phase), retain: o.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain,
		provisioned: o.Annotations[annProvisionedBy] != "", deleting: o.DeletionTimestamp != nil,
	}
	if o.Status.Phase == corev1.VolumeReleased && v.released.zero() {
		v.released = stamp{at: t.clock.Now()}
	}
	if csi := o.Spec.CSI; csi != nil {
		v.handle, v.driver = csi.VolumeHandle, csi.Driver
		t.adopt(v)
	}
	v.touch(v.pvSeen.at, v.released.at)
	for _, r := range t.claimsOf(v) {
		if len(before) == 0 || before[0] != r {
			before = append(before, r)
		}
	}
	return before
}

func (t *Tracker) podSeen(o *corev1.Pod) []Ref {
	var refs []Ref
	for _, vol := range o.Spec.Volumes {
		ref := Ref{Namespace: o.Namespace}
		switch {
		case vol.PersistentVolumeClaim != nil:
			ref.Name = vol.PersistentVolumeClaim.ClaimName
		case vol.Ephemeral != nil:
			ref.Name = o.Name + "-" + vol.Name
		default:
			continue
		}
		refs = append(refs, ref)
		t.useSeen(t.claimOf(ref), o)
	}
	if len(refs) > 0 {
		t.pods[o.UID] = podRecord{claims: refs}
	}
	return refs
}

func (t *Tracker) useSeen(c *claim, o *corev1.Pod) {
	u := c.use(o.UID)
	first := u == nil
	if first {
		u = &use{pod: o.Name, uid: o.UID, created: t.seen(o.CreationTimestamp.Time), born: o.CreationTimestamp.Time, problems: map[Name]problem{}}
		c.uses = append(c.uses, u)
		if len(c.uses) > maxUses {
			c.uses = append([]*use(nil), c.uses[1:]...)
		}
	}
	now := t.clock.Now()
	c.changed = now
	missed := first && u.created.coarse
	if o.Spec.NodeName != "" && u.node == "" {
		u.node, u.scheduled = o.Spec.NodeName, transition(missed, now)
		for _, cond := range o.Status.Conditions {
			if missed && cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionTrue {
				u.scheduled = stamp{cond.LastTransitionTime.Time, true}
			}
		}
	}
	u.phase = o.Status.Phase
	if !u.ran && (u.phase == corev1.PodRunning || u.phase == corev1.PodSucceeded) {
		u.ran, u.running = true, transition(missed, now)
	}
	u.reason = strings.TrimSpace(o.Status.Reason + " " + o.Status.Message)
	if o.DeletionTimestamp != nil && u.deleting.zero() {
		u.deleting = stamp{at: now}
	}
	if u.stopped() && u.ended.zero() {
		u.ended = stamp{at: now}
	}
}

// transition is the time of a change that an object shows: now, or unknown if the
// change was over before we first saw the object.
func transition(missed bool, now time.Time) stamp {
	if missed {
		return stamp{}
	}
	return stamp{at: now}
}

func (t *Tracker) attachmentSeen(o *storagev1.VolumeAttachment) []Ref {
	if o.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	name := *o.Spec.Source.PersistentVolumeName
	v := t.volumes[name]
	if v == nil {
		v = t.newVolume(name)
	}
	a := v.attachments[o.Spec.NodeName]
	first := a == nil || a.uid != o.UID
	if first {
		a = &attachment{name: o.Name, uid: o.UID, seen: t.seen(o.CreationTimestamp.Time)}
		v.attachments[o.Spec.NodeName] = a
	}
	now := t.clock.Now()
	if o.Status.Attached && !a.attached {
		a.up = transition(first && a.seen.coarse, now)
	}
	a.attached = o.Status.Attached
	a.attachErr, a.attachCode, a.detachErr = "", "", ""
	if e := o.Status.AttachError; e != nil {
		a.attachErr, a.attachCode = e.Message, codeIn(e.Message)
	}
	if e := o.Status.DetachError; e != nil {
		a.detachErr = e.Message
	}
	if o.DeletionTimestamp != nil && a.deleting.zero() {
		a.deleting = stamp{at: now}
	}
	v.touch(now)
	return t.claimsOf(v)
}

func (t *Tracker) attachmentGone(o *storagev1.VolumeAttachment, now stamp) []Ref {
	if o.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	v := t.volumes[*o.Spec.Source.PersistentVolumeName]
	if v == nil {
		return nil
	}
	if a := v.attachments[o.Spec.NodeName]; a != nil && a.uid == o.UID {
		a.gone = now
		if a.deleting.zero() {
			a.deleting = now
		}
	}
	v.touch(now.at)
	return t.claimsOf(v)
}

func (t *Tracker) csiNodeSeen(o *storagev1.CSINode) {
	for _, d := range o.Spec.Drivers {
		t.nodeIDs[d.NodeID] = o.Name
	}
}

func (c *claim) use(pod types.UID) *use {
	for _, u := range c.uses {
		if u.uid == pod {
			return u
		}
	}
	return nil
}
