package fakecloud

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// state is everything recorded, in memory. Records are never changed in place: a
// reader may keep what it got. The Cloud's mutex guards it.
type state struct {
	volumes     map[VolumeID]*Volume
	byCreation  ordered[*Volume]            // all
	byRegion    map[string]ordered[*Volume] // by region slug
	byName      map[place]VolumeID
	onDroplet   map[DropletID]ordered[*Volume]
	capacityGiB int64 // of all volumes

	droplets    map[DropletID]*Droplet
	lastDroplet DropletID

	actions    map[ActionID]*Action
	actionIDs  []ActionID // ascending
	ofVolume   map[VolumeID][]ActionID
	ofDroplet  map[DropletID][]ActionID // actions on the droplet itself
	lastAction ActionID

	snapshots    map[SnapshotID]*Snapshot
	snapshotList ordered[*Snapshot]
	snapshotsOf  map[VolumeID]ordered[*Snapshot]
	snapshotName map[string]SnapshotID

	tags map[string]string // lower case -> as created
}

// place is where a volume's name must be unique.
type place struct{ region, name string }

// Ids start where nobody takes them for something else.
const (
	firstDroplet DropletID = 100000000
	firstAction  ActionID  = 500000000
)

func newState() *state {
	return &state{
		volumes: map[VolumeID]*Volume{}, byRegion: map[string]ordered[*Volume]{}, byName: map[place]VolumeID{}, onDroplet: map[DropletID]ordered[*Volume]{},
		droplets: map[DropletID]*Droplet{}, lastDroplet: firstDroplet,
		actions: map[ActionID]*Action{}, ofVolume: map[VolumeID][]ActionID{}, ofDroplet: map[DropletID][]ActionID{}, lastAction: firstAction,
		snapshots: map[SnapshotID]*Snapshot{}, snapshotsOf: map[VolumeID]ordered[*Snapshot]{}, snapshotName: map[string]SnapshotID{},
		tags: map[string]string{},
	}
}

// apply takes over a change that the database has.
func (s *state) apply(ch change) {
	for _, id := range ch.noVolumes {
		s.dropVolume(id)
	}
	for _, id := range ch.noDroplets {
		delete(s.droplets, id)
	}
	for _, id := range ch.noActions {
		s.dropAction(id)
	}
	for _, id := range ch.noSnapshots {
		s.dropSnapshot(id)
	}
	for _, name := range ch.noTags {
		delete(s.tags, strings.ToLower(name))
	}
	for i := range ch.volumes {
		s.putVolume(&ch.volumes[i])
	}
	for i := range ch.droplets {
		d := &ch.droplets[i]
		s.droplets[d.ID] = d
		s.lastDroplet = max(s.lastDroplet, d.ID)
	}
	for i := range ch.actions {
		s.putAction(&ch.actions[i])
	}
	for i := range ch.snapshots {
		s.dropSnapshot(ch.snapshots[i].ID)
		s.putSnapshot(&ch.snapshots[i])
	}
	for _, name := range ch.tags {
		if key := strings.ToLower(name); s.tags[key] == "" {
			s.tags[key] = name
		}
	}
}

func (s *state) putVolume(v *Volume) {
	s.dropVolume(v.ID)
	s.volumes[v.ID] = v
	s.byName[place{v.Region, v.Name}] = v.ID
	s.byCreation = s.byCreation.put(v)
	s.byRegion[v.Region] = s.byRegion[v.Region].put(v)
	for _, d := range v.Droplets() {
		s.onDroplet[d] = s.onDroplet[d].put(v)
	}
	s.capacityGiB += v.SizeGiB
}

func (s *state) dropVolume(id VolumeID) {
	v := s.volumes[id]
	if v == nil {
		return
	}
	delete(s.volumes, id)
	delete(s.byName, place{v.Region, v.Name})
	s.byCreation = s.byCreation.drop(v)
	s.byRegion[v.Region] = s.byRegion[v.Region].drop(v)
	for _, d := range v.Droplets() {
		if s.onDroplet[d] = s.onDroplet[d].drop(v); len(s.onDroplet[d]) == 0 {
			delete(s.onDroplet, d)
		}
	}
	s.capacityGiB -= v.SizeGiB
}

func (s *state) putAction(a *Action) {
	_, known := s.actions[a.ID]
	s.actions[a.ID] = a
	s.lastAction = max(s.lastAction, a.ID)
	if known {
		return
	}
	s.actionIDs = append(s.actionIDs, a.ID)
	if a.Volume != "" {
		s.ofVolume[a.Volume] = append(s.ofVolume[a.Volume], a.ID)
	} else {
		s.ofDroplet[a.Droplet] = append(s.ofDroplet[a.Droplet], a.ID)
	}
}

func (s *state) dropAction(id ActionID) {
	a := s.actions[id]
	if a == nil {
		return
	}
	delete(s.actions, id)
	s.actionIDs = without(s.actionIDs, id)
	if a.Volume != "" {
		if s.ofVolume[a.Volume] = without(s.ofVolume[a.Volume], id); len(s.ofVolume[a.Volume]) == 0 {
			delete(s.ofVolume, a.Volume)
		}
	} else if s.ofDroplet[a.Droplet] = without(s.ofDroplet[a.Droplet], id); len(s.ofDroplet[a.Droplet]) == 0 {
		delete(s.ofDroplet, a.Droplet)
	}
}

// without removes id from an ascending list. The first costs nothing: history is forgotten from its old end.
func without(ids []ActionID, id ActionID) []ActionID {
	i, ok := slices.BinarySearch(ids, id)
	switch {
	case !ok:
		return ids
	case i == 0:
		return ids[1:]
	}
	return slices.Delete(ids, i, i+1)
}

func (s *state) putSnapshot(n *Snapshot) {
	s.snapshots[n.ID] = n
	s.snapshotName[n.Name] = n.ID
	s.snapshotList = s.snapshotList.put(n)
	s.snapshotsOf[n.Volume] = s.snapshotsOf[n.Volume].put(n)
}

func (s *state) dropSnapshot(id SnapshotID) {
	n := s.snapshots[id]
	if n == nil {
		return
	}
	delete(s.snapshots, id)
	delete(s.snapshotName, n.Name)
	s.snapshotList = s.snapshotList.drop(n)
	if s.snapshotsOf[n.Volume] = s.snapshotsOf[n.Volume].drop(n); len(s.snapshotsOf[n.Volume]) == 0 {
		delete(s.snapshotsOf, n.Volume)
	}
}

// ordered is a list by creation, oldest first, then by id: stable between pages,
// and a page costs the same wherever it lies.
type ordered[T interface{ key() (time.Time, string) }] []T

func (v *Volume) key() (time.Time, string)   { return v.Created, string(v.ID) }
func (n *Snapshot) key() (time.Time, string) { return n.Created, string(n.ID) }

func (o ordered[T]) find(x T) (int, bool) {
	at, id := x.key()
	// What is put is nearly always the newest.
	if n := len(o); n > 0 {
		if last, _ := o[n-1].key(); last.Before(at) {
			return n, false
		}
	}
	return slices.BinarySearchFunc(o, x, func(e, _ T) int {
		t, i := e.key()
		return cmp.Or(t.Compare(at), strings.Compare(i, id))
	})
}

func (o ordered[T]) put(x T) ordered[T] {
	i, found := o.find(x)
	if found {
		o[i] = x
		return o
	}
	return slices.Insert(o, i, x)
}

func (o ordered[T]) drop(x T) ordered[T] {
	if i, found := o.find(x); found {
		return slices.Delete(o, i, i+1)
	}
	return o
}
