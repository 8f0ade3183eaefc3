package attachdetach

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// attachment is what is believed about a volume on a node.
//
//	(none) --attach starts--> (none) --attached--> certain --detach fails--> uncertain
//	                            \----attach fails-> uncertain --attached--> certain
//	certain, uncertain --detached--> (none)
type attachment struct {
	place
	volume *corev1.PersistentVolume // nil while unknown
	// certain: an attach succeeded or the node reports it. Others of an exclusive
	// volume wait for it; an uncertain one does not keep them waiting.
	certain bool
	// inUse is what the node's volumesInUse said last, and true until it said something.
	inUse bool
	// assumed: the node has not said anything about it yet.
	assumed bool
	// unwantedSince is when it was first found unwanted; zero while it is wanted.
	unwantedSince time.Time
	// reported: it belongs into node.status.volumesAttached.
	reported bool
}

// actual says which volume is attached where. Guarded by Controller.mu.
type actual struct {
	list map[place]*attachment
}

func newActual() actual { return actual{list: map[place]*attachment{}} }

func (a *actual) get(v Volume, n NodeName) *attachment { return a.list[place{v, n}] }

func (a *actual) ensure(v Volume, n NodeName, pv *corev1.PersistentVolume) *attachment {
	at := a.list[place{v, n}]
	if at == nil {
		at = &attachment{place: place{v, n}, inUse: true, assumed: true}
		a.list[at.place] = at
	}
	if pv != nil {
		at.volume = pv
	}
	return at
}

// attached records a certain attachment, to be reported.
func (a *actual) attached(v Volume, n NodeName, pv *corev1.PersistentVolume) {
	at := a.ensure(v, n, pv)
	at.certain, at.reported = true, true
	at.unwantedSince = time.Time{}
}

// uncertain records an attachment that may or may not be.
func (a *actual) uncertain(v Volume, n NodeName, pv *corev1.PersistentVolume) {
	a.ensure(v, n, pv).certain = false
}

// detached forgets an attachment.
func (a *actual) detached(p place) { delete(a.list, p) }

// told takes in a node's volumesInUse and says what it speaks about.
func (a *actual) told(n NodeName, inUse []Volume) {
	for p, at := range a.list {
		if p.Node == n {
			at.inUse, at.assumed = slices.Contains(inUse, p.Volume), false
		}
	}
}

// learn fills in the volumes of attachments known by name only.
func (a *actual) learn(known map[Volume]*corev1.PersistentVolume) {
	for p, at := range a.list {
		if at.volume == nil {
			at.volume = known[p.Volume]
		}
	}
}

// holders returns the other nodes that certainly have the volume.
func (a *actual) holders(v Volume, but NodeName) []NodeName {
	var nodes []NodeName
	for p, at := range a.list {
		if p.Volume == v && p.Node != but && at.certain {
			nodes = append(nodes, p.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// sorted returns the attachments in a fixed order.
func (a *actual) sorted() []*attachment {
	list := make([]*attachment, 0, len(a.list))
	for _, at := range a.list {
		list = append(list, at)
	}
	slices.SortFunc(list, func(x, y *attachment) int { return comparePlaces(x.place, y.place) })
	return list
}

func comparePlaces(x, y place) int {
	return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Volume, y.Volume))
}

// report returns the entries of a node's volumesAttached, ordered by name.
func (a *actual) report(n NodeName) []corev1.AttachedVolume {
	var list []corev1.AttachedVolume
	for p, at := range a.list {
		if p.Node == n && at.reported {
			list = append(list, corev1.AttachedVolume{Name: p.Volume})
		}
	}
	slices.SortFunc(list, func(x, y corev1.AttachedVolume) int { return cmp.Compare(x.Name, y.Name) })
	return list
}
