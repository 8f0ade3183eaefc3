package fakecloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

// model is what the cloud should hold, by volume and snapshot name.
type model struct {
	*rig
	t         *rapid.T
	droplets  []fakecloud.DropletID
	volumes   map[string]fakecloud.Volume
	snapshots map[string]fakecloud.Snapshot
	next      int
}

// call runs one call of a client. If the cloud is killed on the way, the call ends
// without an answer, as it would for a client of a killed process.
func (m *model) call(f func(context.Context) error) (answered bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = f(context.Background())
		answered = true
	}()
	<-done
	if err != nil && m.cloud.Component().Killed() {
		return false, nil
	}
	return answered, err
}

func (m *model) pick(label string) (fakecloud.Volume, bool) {
	if len(m.volumes) == 0 {
		return fakecloud.Volume{}, false
	}
	return m.volumes[rapid.SampledFrom(slices.Sorted(maps.Keys(m.volumes))).Draw(m.t, label)], true
}

// recover waits for what is in progress, and brings the cloud back if it is killed.
func (m *model) recover() {
	killed := func() bool { return m.cloud.Component().Killed() }
	for _, a := range m.actions() {
		if a.Status == fakecloud.InProgress && !killed() {
			_, err := m.cloud.Wait(context.Background(), a.ID)
			m.must(err)
		}
	}
	if killed() {
		m.lab.Faults.Clear()
		m.must(m.cloud.Close())
		m.open()
	}
	m.settled()
}

// maybeKill puts a kill rule on one of the points for the next operation.
func (m *model) maybeKill() {
	if !rapid.Bool().Draw(m.t, "kill") {
		return
	}
	p := rapid.SampledFrom(fakecloud.Points()).Draw(m.t, "point")
	_, err := m.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
	m.must(err)
}

// adopt takes over what a call did that got no answer: it may have happened or not,
// but nothing else may have.
func (m *model) adopt(name string, allowed func(was, is fakecloud.Volume, exists bool) bool) {
	was := m.volumes[name]
	is, err := m.cloud.VolumeByName(name, "nyc3")
	if !allowed(was, is, err == nil) {
		m.Fatalf("volume %s was %+v and is now %+v (%v)", name, was, is, err)
	}
	if err == nil {
		m.volumes[name] = is
	} else {
		delete(m.volumes, name)
	}
}

func (m *model) create(t *rapid.T) {
	m.next++
	n := fakecloud.NewVolume{Name: fmt.Sprintf("v%d", m.next), Region: "nyc3", SizeGiB: rapid.Int64Range(1, 3).Draw(t, "size")}
	if len(m.snapshots) > 0 && rapid.Bool().Draw(t, "restore") {
		s := m.snapshots[rapid.SampledFrom(slices.Sorted(maps.Keys(m.snapshots))).Draw(t, "snapshot")]
		n.Snapshot, n.SizeGiB = s.ID, s.SizeGiB
	}
	m.maybeKill()
	answered, err := m.call(func(ctx context.Context) error {
		v, err := m.cloud.CreateVolume(ctx, n)
		if err == nil && v.SizeGiB != n.SizeGiB {
			t.Errorf("asked for %d GiB, got %d", n.SizeGiB, v.SizeGiB)
		}
		return err
	})
	m.recover()
	m.must(err)
	m.adopt(n.Name, func(_, is fakecloud.Volume, exists bool) bool {
		return exists && is.SizeGiB == n.SizeGiB || !exists && !answered
	})
}

func (m *model) remove(t *rapid.T) {
	v, ok := m.pick("volume")
	if !ok {
		return
	}
	m.maybeKill()
	answered, err := m.call(func(ctx context.Context) error { return m.cloud.DeleteVolume(ctx, v.ID) })
	m.recover()
	if v.Droplet != 0 {
		if answered && fakecloud.KindOf(err) != fakecloud.Conflict {
			t.Fatalf("delete of an attached volume: %v", err)
		}
		m.adopt(v.Name, func(was, is fakecloud.Volume, exists bool) bool { return exists && is.Droplet == was.Droplet })
		return
	}
	m.must(err)
	m.adopt(v.Name, func(_, _ fakecloud.Volume, exists bool) bool { return !exists || !answered })
}

// act starts an action on a volume and compares its end with what the rules say.
func (m *model) act(t *rapid.T) {
	v, ok := m.pick("volume")
	if !ok {
		return
	}
	r := fakecloud.Request{Volume: v.ID, Type: rapid.SampledFrom([]fakecloud.ActionType{
		fakecloud.AttachVolume, fakecloud.DetachVolume, fakecloud.ResizeVolume}).Draw(t, "type")}
	r.Droplet = rapid.SampledFrom(m.droplets).Draw(t, "droplet")
	r.SizeGiB = v.SizeGiB + rapid.Int64Range(-1, 2).Draw(t, "more")
	want, refused := v, error(nil)
	switch {
	case r.Type == fakecloud.AttachVolume && v.Droplet == 0:
		want.Droplet = r.Droplet
	case r.Type == fakecloud.DetachVolume && v.Droplet == r.Droplet:
		want.Droplet = 0
	case r.Type == fakecloud.ResizeVolume && r.SizeGiB > v.SizeGiB:
		want.SizeGiB = r.SizeGiB
	default:
		refused = errors.New("refused")
	}
	m.maybeKill()
	answered, err := m.call(func(ctx context.Context) error {
		a, err := m.cloud.Start(ctx, r)
		if err == nil {
			_, err = m.cloud.Wait(ctx, a.ID)
		}
		return err
	})
	m.recover()
	if refused != nil {
		if answered && err == nil {
			t.Fatalf("%+v on %+v was not refused", r, v)
		}
		want = v
	} else {
		m.must(err)
	}
	m.adopt(v.Name, func(was, is fakecloud.Volume, exists bool) bool {
		done := is.Droplet == want.Droplet && is.SizeGiB == want.SizeGiB
		return exists && (done || !answered && is.Droplet == was.Droplet && is.SizeGiB == was.SizeGiB)
	})
}

func (m *model) power(t *rapid.T) {
	id := rapid.SampledFrom(m.droplets).Draw(t, "droplet")
	d, err := m.cloud.Droplet(id)
	m.must(err)
	kind := fakecloud.PowerOff
	if d.Status == fakecloud.DropletOff {
		kind = fakecloud.PowerOn
	}
	m.maybeKill()
	_, err = m.call(func(ctx context.Context) error { _, err := m.cloud.StartDroplet(ctx, id, kind); return err })
	m.recover()
	m.must(err)
}

func (m *model) snapshot(t *rapid.T) {
	v, ok := m.pick("volume")
	if !ok {
		return
	}
	m.next++
	name := fmt.Sprintf("s%d", m.next)
	m.maybeKill()
	_, err := m.call(func(ctx context.Context) error {
		_, err := m.cloud.CreateSnapshot(ctx, fakecloud.NewSnapshot{Volume: v.ID, Name: name})
		return err
	})
	m.recover()
	m.must(err)
	all, _ := m.cloud.Snapshots(fakecloud.SnapshotFilter{Volume: v.ID}, fakecloud.Page{Size: 200})
	for _, s := range all {
		if s.Name == name {
			m.snapshots[name] = s
		}
	}
}

func (m *model) reopen(*rapid.T) {
	m.must(m.cloud.Close())
	m.open()
	m.settled()
}

func (m *model) check(*rapid.T) {
	m.lab.Faults.Clear()
	m.agrees()
	page, total := m.cloud.Volumes(fakecloud.VolumeFilter{}, fakecloud.Page{Size: 200})
	if total != len(m.volumes) {
		m.Fatalf("%d volumes, the model has %d", total, len(m.volumes))
	}
	for _, v := range page {
		if w := m.volumes[v.Name]; w.ID != v.ID || w.SizeGiB != v.SizeGiB || w.Droplet != v.Droplet {
			m.Fatalf("volume %+v, the model has %+v", v, w)
		}
	}
}

// TestModel plays random calls against a plain map, kills the cloud at its points
// in the middle of them, and opens it again.
func TestModel(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		rapid.Check(t, func(t *rapid.T) {
			m := &model{rig: newRig(t, kind, fakecloud.Config{}), t: t, volumes: map[string]fakecloud.Volume{}, snapshots: map[string]fakecloud.Snapshot{}}
			defer func() { m.end() }()
			for _, name := range []string{"n1", "n2"} {
				id, err := m.cloud.EnsureDroplet(context.Background(), name)
				m.must(err)
				m.droplets = append(m.droplets, id)
			}
			t.Repeat(map[string]func(*rapid.T){
				"create": m.create, "delete": m.remove, "act": m.act, "act again": m.act, "power": m.power, "snapshot": m.snapshot, "reopen": m.reopen, "": m.check,
			})
		})
	})
}
