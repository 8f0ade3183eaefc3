package api

import "drydock.dev/drydock/fakecloud"

// everything collects all pages of a list.
func everything[T any](list func(fakecloud.Page) ([]T, int)) (out []T) {
	for n := 1; ; n++ {
		page, total := list(fakecloud.Page{Number: n, Size: fakecloud.MaxPageSize})
		if out = append(out, page...); len(out) >= total || len(page) == 0 {
			return out
		}
	}
}

// dump answers everything the cloud knows. What changes while it is read may be in it
// or not, each record as a whole.
func (s *server) dump(c *call) (int, any, error) {
	snapshots := everything(func(p fakecloud.Page) ([]fakecloud.Snapshot, int) {
		return s.cloud.Snapshots(fakecloud.SnapshotFilter{}, p)
	})
	volumes := everything(func(p fakecloud.Page) ([]fakecloud.Volume, int) { return s.cloud.Volumes(fakecloud.VolumeFilter{}, p) })
	droplets := everything(func(p fakecloud.Page) ([]fakecloud.Droplet, int) {
		return s.cloud.Droplets(fakecloud.DropletFilter{}, p)
	})
	actions := everything(func(p fakecloud.Page) ([]fakecloud.Action, int) {
		return s.cloud.Actions(fakecloud.ActionFilter{}, p)
	})
	tags := everything(s.cloud.Tags)
	return 0, map[string]any{
		"region":   s.cloud.Region(),
		"settings": s.cloud.Settings(),
		"volumes":  each(volumes, extendedVolume), "droplets": each(droplets, droplet), "snapshots": each(snapshots, snapshot),
		"actions": each(actions, extendedAction), "tags": each(tags, c.tag), "copies": each(s.cloud.Copies(), copyView),
	}, nil
}

// volumeExtension is a volume with what is ours.
type volumeExtension struct {
	volumeObject
	MultiAttach bool                  `json:"multi_attach"`
	ReadOnly    bool                  `json:"read_only"`
	Performance fakecloud.Performance `json:"performance"`
}

func extendedVolume(v fakecloud.Volume) volumeExtension {
	return volumeExtension{volume(v), v.Shared, v.ReadOnly, v.Performance}
}

// actionExtension says of an action what the real API does not.
type actionExtension struct {
	actionObject
	VolumeID  fakecloud.VolumeID  `json:"volume_id,omitempty"`
	DropletID fakecloud.DropletID `json:"droplet_id,omitempty"`
	Size      int64               `json:"size_gigabytes,omitempty"`
	Error     string              `json:"error,omitempty"`
}

func extendedAction(a fakecloud.Action) actionExtension {
	return actionExtension{action(a), a.Volume, a.Droplet, a.SizeGiB, a.Error}
}

type copyObject struct {
	Kind     string               `json:"kind"`
	Name     string               `json:"name"`
	Volume   fakecloud.VolumeID   `json:"volume_id"`
	Snapshot fakecloud.SnapshotID `json:"snapshot_id,omitempty"`
	Done     int64                `json:"done_bytes"`
	Total    int64                `json:"total_bytes"`
}

func copyView(k fakecloud.Copy) copyObject {
	return copyObject{k.Kind, k.Name, k.Volume, k.Snapshot, k.Done, k.Total}
}

// leftovers answers what on this machine and in the records does not fit together.
func (s *server) leftovers(c *call) (int, any, error) {
	list, err := s.cloud.Leftovers(c.r.Context())
	return 0, map[string]any{"leftovers": each(list, func(l fakecloud.Leftover) map[string]string {
		return map[string]string{"kind": l.Kind, "path": l.Path, "why": l.Why}
	})}, err
}

type costObject struct {
	Kind  string  `json:"kind"` // volume, snapshot, droplet
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Month float64 `json:"usd_month"`
}

// costs answers what everything that exists costs in a month, at public list price.
func (s *server) costs(*call) (int, any, error) {
	var items []costObject
	var total float64
	add := func(kind, id, name string, month float64) {
		items = append(items, costObject{kind, id, name, month})
		total += month
	}
	for _, v := range everything(func(p fakecloud.Page) ([]fakecloud.Volume, int) { return s.cloud.Volumes(fakecloud.VolumeFilter{}, p) }) {
		add("volume", string(v.ID), v.Name, v.MonthlyUSD())
	}
	for _, n := range everything(func(p fakecloud.Page) ([]fakecloud.Snapshot, int) {
		return s.cloud.Snapshots(fakecloud.SnapshotFilter{}, p)
	}) {
		add("snapshot", string(n.ID), n.Name, n.MonthlyUSD())
	}
	for _, d := range everything(func(p fakecloud.Page) ([]fakecloud.Droplet, int) {
		return s.cloud.Droplets(fakecloud.DropletFilter{}, p)
	}) {
		add("droplet", idText(d), d.Name, d.MonthlyUSD())
	}
	return 0, map[string]any{"costs": notNil(items), "usd_month": total, "usd_gib_month": map[string]float64{
		"volume": fakecloud.VolumeGiBMonth, "snapshot": fakecloud.SnapshotGiBMonth}}, nil
}
