package attachdetach

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// annManaged is the node annotation by which a kubelet leaves attaching to this controller.
const annManaged = "volumes.kubernetes.io/controller-managed-attach-detach"

// place is a volume on a node.
type place struct {
	Volume Volume
	Node   NodeName
}

// want is a volume that a node should have.
type want struct {
	volume *corev1.PersistentVolume
	pods   map[types.UID]*corev1.Pod
	// multiAttachSaid is set once its pods were told that another node has the volume.
	multiAttachSaid bool
}

// desired says which node should have which volume. Guarded by Controller.mu.
type desired struct {
	managed map[NodeName]bool
	wants   map[place]*want
	byPod   map[types.UID]map[string]place // by the name of the volume in the pod's spec
}

func newDesired() desired {
	return desired{managed: map[NodeName]bool{}, wants: map[place]*want{}, byPod: map[types.UID]map[string]place{}}
}

// manage takes in a node that leaves attaching to us, and tells whether it is new.
func (d *desired) manage(n *corev1.Node) bool {
	if n.Annotations[annManaged] != "true" || d.managed[NodeName(n.Name)] {
		return false
	}
	d.managed[NodeName(n.Name)] = true
	return true
}

// unmanage forgets a deleted node unless pods on it still have volumes.
func (d *desired) unmanage(node NodeName) {
	for p := range d.wants {
		if p.Node == node {
			return
		}
	}
	delete(d.managed, node)
}

// wish is one volume of one pod.
type wish struct {
	place  place
	volume *corev1.PersistentVolume
}

// set replaces what one pod wants, by the names of its volumes, and tells whether that changed anything.
func (d *desired) set(pod *corev1.Pod, wishes map[string]wish) bool {
	now := make(map[string]place, len(wishes))
	keep := make(map[place]bool, len(wishes))
	for name, w := range wishes {
		now[name] = w.place
		keep[w.place] = true
	}
	changed := false
	for _, p := range d.byPod[pod.UID] {
		w := d.wants[p]
		if keep[p] || w == nil {
			continue
		}
		delete(w.pods, pod.UID)
		if len(w.pods) == 0 {
			delete(d.wants, p)
		}
		changed = true
	}
	for _, wish := range wishes {
		w := d.wants[wish.place]
		if w == nil {
			w = &want{pods: map[types.UID]*corev1.Pod{}}
			d.wants[wish.place] = w
		}
		if _, had := w.pods[pod.UID]; !had {
			changed = true
		}
		w.volume = wish.volume
		w.pods[pod.UID] = pod
	}
	if len(now) == 0 {
		delete(d.byPod, pod.UID)
	} else {
		d.byPod[pod.UID] = now
	}
	return changed
}

// podsOn returns the pods that want a volume on any of the nodes.
func (d *desired) podsOn(volume Volume, nodes []NodeName) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, n := range nodes {
		if w := d.wants[place{volume, n}]; w != nil {
			pods = append(pods, w.list()...)
		}
	}
	return pods
}

// list returns the pods in order of their names.
func (w *want) list() []*corev1.Pod {
	pods := slices.Collect(maps.Values(w.pods))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name {
			return -1
		}
		return 1
	})
	return pods
}

// desire works out what a pod wants attached. Called with mu held.
func (c *Controller) desire(pod *corev1.Pod) bool {
	wishes := map[string]wish{}
	node := NodeName(pod.Spec.NodeName)
	if node != "" && c.desired.managed[node] && !control.IsTerminated(pod) {
		before := c.desired.byPod[pod.UID]
		for i := range pod.Spec.Volumes {
			name := pod.Spec.Volumes[i].Name
			v, known := c.attachable(pod, &pod.Spec.Volumes[i])
			if v != nil {
				wishes[name] = wish{place{UniqueName(v), node}, v}
			} else if p, had := before[name]; had && !known {
				// The claim went from under a pod that still runs: it keeps its volume.
				wishes[name] = wish{p, c.desired.wants[p].volume}
			}
		}
	}
	return c.desired.set(pod, wishes)
}

// attachable returns the CSI volume behind a pod's volume if it is bound and its
// driver wants it attached. Known is false when that cannot be told yet.
func (c *Controller) attachable(pod *corev1.Pod, pv *corev1.Volume) (v *corev1.PersistentVolume, known bool) {
	name, isEphemeral := control.ClaimName(pod, pv)
	if name == "" {
		return nil, true
	}
	claim, err := c.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err != nil || claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return nil, false
	}
	if isEphemeral && ephemeral.VolumeIsForPod(pod, claim) != nil {
		return nil, false
	}
	v, err = c.volumes.Get(claim.Spec.VolumeName)
	if err != nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return nil, false
	}
	if v.Spec.CSI == nil {
		return nil, true
	}
	if d, err := c.drivers.Get(v.Spec.CSI.Driver); err == nil && d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired {
		return nil, true
	}
	return v, true
}

// The handlers run in the informers' goroutines, also before Run: then they only
// feed caches, from which rebuild starts.

func (c *Controller) podSeen(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started && c.desire(pod) {
		c.poke()
	}
}

func (c *Controller) podGone(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started && c.desired.set(pod, nil) {
		c.poke()
	}
}

func (c *Controller) claimSeen(old, claim *corev1.PersistentVolumeClaim) {
	if old != nil && old.Status.Phase == claim.Status.Phase && old.Spec.VolumeName == claim.Spec.VolumeName {
		return
	}
	c.podsOf(control.Key(claim.Namespace, claim.Name))
}

func (c *Controller) volumeSeen(old, v *corev1.PersistentVolume) {
	if old != nil && old.Spec.ClaimRef != nil && v.Spec.ClaimRef != nil && old.Spec.ClaimRef.UID == v.Spec.ClaimRef.UID {
		return
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		c.podsOf(control.Key(ref.Namespace, ref.Name))
	}
}

// podsOf works out anew what the pods of a claim want.
func (c *Controller) podsOf(claim string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return
	}
	for _, pod := range control.Pods(c.pods, control.PodsByClaim, claim) {
		if c.desire(pod) {
			c.poke()
		}
	}
}

// driverSeen may make volumes attachable or not.
func (c *Controller) driverSeen(*storagev1.CSIDriver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return
	}
	for _, o := range c.pods.List() {
		if c.desire(o.(*corev1.Pod)) {
			c.poke()
		}
	}
}

// nodeCame is nodeSeen for a node that is new: one that was deleted and made again knows nothing of what is attached to it.
func (c *Controller) nodeCame(n *corev1.Node) {
	c.nodeSeen(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started && !slices.EqualFunc(n.Status.VolumesAttached, c.actual.report(NodeName(n.Name)), func(a, b corev1.AttachedVolume) bool { return a.Name == b.Name }) {
		c.reportSoon(NodeName(n.Name))
	}
}

func (c *Controller) nodeSeen(n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return
	}
	if c.desired.manage(n) {
		for _, pod := range control.Pods(c.pods, control.PodsByNode, n.Name) {
			c.desire(pod)
		}
	}
	c.actual.told(NodeName(n.Name), n.Status.VolumesInUse)
	c.poke() // readiness, taints or volumesInUse may let a detach go on
}

func (c *Controller) nodeGone(n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return
	}
	c.desired.unmanage(NodeName(n.Name))
	c.actual.told(NodeName(n.Name), n.Status.VolumesInUse)
	if r := c.reports[NodeName(n.Name)]; r != nil && !r.running { // else a second one could run beside it, and be overtaken
		delete(c.reports, NodeName(n.Name))
	}
	c.poke()
}
