package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/digitalocean/godo"
	"pgregory.net/rapid"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/blockdev"
)

// disk is a volume as it should be.
type disk struct {
	id      string
	size    int64
	droplet string
	data    string // what lies at the start of the device; empty is blank
}

// apiModel is what the cloud should hold, by name, and several clients of it.
type apiModel struct {
	*rapid.T
	dir, kind string
	process   *exec.Cmd
	clients   []*godo.Client
	transport []*http.Transport
	droplets  map[string]int // by name
	disks     map[string]disk
	snapshots map[string]disk // their id, size and data
	next      int
}

func (m *apiModel) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("%v", err)
	}
}

func (m *apiModel) pick(from map[string]disk, label string) (string, bool) {
	if len(from) == 0 {
		return "", false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(from))).Draw(m.T, label), true
}

// find asks for a volume by its name.
func (m *apiModel) find(name string) (godo.Volume, bool) {
	list, _, err := m.clients[0].Storage.ListVolumes(context.Background(), &godo.ListVolumeParams{Name: name, Region: "nyc3"})
	m.must(err)
	if len(list) == 0 {
		return godo.Volume{}, false
	}
	return list[0], true
}

func (m *apiModel) create(t *rapid.T) {
	m.next++
	name := fmt.Sprintf("v%d", m.next)
	r := &godo.VolumeCreateRequest{Name: name, Region: "nyc3", SizeGigaBytes: rapid.Int64Range(1, 3).Draw(t, "size")}
	want := disk{size: r.SizeGigaBytes}
	if from, ok := m.pick(m.snapshots, "snapshot"); ok && rapid.Bool().Draw(t, "restore") {
		r.SnapshotID, want.size, want.data = m.snapshots[from].id, m.snapshots[from].size, m.snapshots[from].data
	}
	c := m.client()
	call := func() error { _, _, err := c.Storage.CreateVolume(context.Background(), r); return err }
	if from, ok := m.pick(m.disks, "source"); ok && r.SnapshotID == "" && rapid.Bool().Draw(t, "clone") {
		source := m.disks[from]
		want.size, want.data = source.size, source.data
		call = func() error {
			q, err := c.NewRequest(context.Background(), "POST", "v2/drydock/volumes/"+source.id+"/clone", map[string]string{"name": name})
			if err == nil {
				_, err = c.Do(context.Background(), q, nil)
			}
			return err
		}
	}
	answered, err := m.maybeKilled(call)
	v, there := m.find(name)
	if answered && (err != nil || !there) {
		t.Fatalf("create of %s: %v, and it is there: %v", name, err, there)
	}
	if want.id = v.ID; there {
		m.disks[name] = want
	}
}

func (m *apiModel) remove(t *rapid.T) {
	name, ok := m.pick(m.disks, "volume")
	if !ok {
		return
	}
	d, c := m.disks[name], m.client()
	answered, err := m.maybeKilled(func() error { _, err := c.Storage.DeleteVolume(context.Background(), d.id); return err })
	_, there := m.find(name)
	switch {
	case d.droplet != "" && (!there || answered && err == nil):
		t.Fatalf("an attached volume was deleted: %v", err)
	case d.droplet == "" && answered && (there || err != nil):
		t.Fatalf("delete of %s: %v, and it is there: %v", name, err, there)
	case !there:
		delete(m.disks, name)
	}
}

// act attaches, detaches or resizes, and compares with the rules.
func (m *apiModel) act(t *rapid.T) {
	name, ok := m.pick(m.disks, "volume")
	if !ok {
		return
	}
	was, c, ctx := m.disks[name], m.client(), context.Background()
	want, legal := was, false
	droplet := rapid.SampledFrom(modelDroplets).Draw(t, "droplet")
	var call func() error
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		want.droplet, legal = droplet, was.droplet == ""
		call = func() error { _, _, err := c.StorageActions.Attach(ctx, was.id, m.droplets[droplet]); return err }
	case 1:
		want.droplet, legal = "", was.droplet == droplet
		call = func() error {
			_, _, err := c.StorageActions.DetachByDropletID(ctx, was.id, m.droplets[droplet])
			return err
		}
	default:
		want.size = was.size + rapid.Int64Range(-1, 2).Draw(t, "more")
		legal = want.size > was.size
		call = func() error { _, _, err := c.StorageActions.Resize(ctx, was.id, int(want.size), "nyc3"); return err }
	}
	answered, err := m.maybeKilled(call)
	if !legal {
		if answered && err == nil {
			t.Fatalf("%+v to %+v was not refused", was, want)
		}
		want = was
	} else if answered && err != nil {
		t.Fatalf("%+v to %+v: %v", was, want, err)
	}
	m.adopt(name, was, want, answered)
	if now := m.disks[name]; now.droplet != "" {
		m.content(name, was.droplet != now.droplet)
	}
}

// adopt takes over what is: what is wanted, or without an answer what was.
func (m *apiModel) adopt(name string, was, want disk, answered bool) {
	v, there := m.find(name)
	is := was
	is.size, is.droplet = v.SizeGigaBytes, ""
	for n, id := range m.droplets {
		if slices.Contains(v.DropletIDs, id) {
			is.droplet = n
		}
	}
	if !there || is != want && (answered || is != was) {
		m.Fatalf("volume %s was %+v, should be %+v and is %+v (%v)", name, was, want, is, there)
	}
	m.disks[name] = is
}

func (m *apiModel) link(name string) string {
	return filepath.Join(m.dir, "nodes", m.disks[name].droplet, blockdev.LinkPrefix+name)
}

// content checks what lies on an attached volume, and after an attach writes something new.
func (m *apiModel) content(name string, write bool) {
	d := m.disks[name]
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile(m.link(name), flags, 0)
	m.must(err)
	defer f.Close()
	b := make([]byte, 512)
	_, err = f.ReadAt(b, 0)
	m.must(err)
	if got := string(bytes.TrimRight(b, "\x00")); got != d.data {
		m.Fatalf("volume %s holds %q, not %q", name, got, d.data)
	}
	if !write {
		return
	}
	m.next++
	d.data = fmt.Sprintf("%s, write %d", name, m.next)
	copy(b, append([]byte(d.data), make([]byte, len(b)-len(d.data))...))
	_, err = f.WriteAt(b, 0)
	m.must(errors.Join(err, f.Sync()))
	m.disks[name] = d
}

func (m *apiModel) snapshot(t *rapid.T) {
	name, ok := m.pick(m.disks, "volume")
	if !ok {
		return
	}
	m.next++
	s, d, c := fmt.Sprintf("s%d", m.next), m.disks[name], m.client()
	answered, err := m.maybeKilled(func() error {
		_, _, err := c.Storage.CreateSnapshot(context.Background(), &godo.SnapshotCreateRequest{VolumeID: d.id, Name: s})
		return err
	})
	list, _, e := m.clients[0].Snapshots.ListVolume(context.Background(), &godo.ListOptions{PerPage: 200})
	m.must(e)
	i := slices.IndexFunc(list, func(x godo.Snapshot) bool { return x.Name == s })
	if answered && (err != nil || i < 0) {
		t.Fatalf("snapshot of %s: %v, its place %d", name, err, i)
	}
	if i >= 0 {
		m.snapshots[s] = disk{id: list[i].ID, size: int64(list[i].MinDiskSize), data: d.data}
	}
}

func (m *apiModel) removeSnapshot(t *rapid.T) {
	name, ok := m.pick(m.snapshots, "snapshot")
	if !ok {
		return
	}
	c, id := m.client(), m.snapshots[name].id
	answered, err := m.maybeKilled(func() error { _, err := c.Snapshots.Delete(context.Background(), id); return err })
	_, resp, e := m.clients[0].Snapshots.Get(context.Background(), id)
	gone := e != nil && resp != nil && resp.StatusCode == http.StatusNotFound
	if answered && (err != nil || !gone) {
		t.Fatalf("delete of snapshot %s: %v, gone %v", name, err, gone)
	}
	if gone {
		delete(m.snapshots, name)
	}
}

// race lets all clients attach one volume at once, each where it likes: one wins.
func (m *apiModel) race(t *rapid.T) {
	name, ok := m.pick(m.disks, "volume")
	if !ok || m.disks[name].droplet != "" {
		return
	}
	was, errs := m.disks[name], make([]error, len(m.clients))
	var wg sync.WaitGroup
	for i, c := range m.clients {
		droplet := rapid.SampledFrom(modelDroplets).Draw(t, "droplet")
		wg.Go(func() {
			_, _, errs[i] = c.StorageActions.Attach(context.Background(), was.id, m.droplets[droplet])
		})
	}
	wg.Wait()
	m.settle()
	won := 0
	for _, err := range errs {
		var e *godo.ErrorResponse
		switch {
		case err == nil:
			won++
		case !errors.As(err, &e) || e.Response.StatusCode != 422 || e.Message != fakecloud.TextAttached && e.Message != fakecloud.TextPending:
			t.Fatalf("attach in a race: %v", err)
		}
	}
	v, _ := m.find(name)
	if won != 1 || len(v.DropletIDs) != 1 {
		t.Fatalf("%d clients attached volume %s, which is on %v", won, name, v.DropletIDs)
	}
	for n, id := range m.droplets {
		if id == v.DropletIDs[0] {
			was.droplet = n
		}
	}
	m.disks[name] = was
	m.content(name, true)
}

// lose deletes a droplet, which releases its volumes, and makes one of its name again.
func (m *apiModel) lose(t *rapid.T) {
	name := rapid.SampledFrom(modelDroplets).Draw(t, "droplet")
	was, c := m.droplets[name], m.client()
	answered, err := m.maybeKilled(func() error { _, err := c.Droplets.Delete(context.Background(), was); return err })
	m.must(errors.Join(map[bool]error{true: err}[answered]))
	_, resp, e := m.clients[0].Droplets.Get(context.Background(), was)
	gone := e != nil && resp != nil && resp.StatusCode == http.StatusNotFound
	if answered && !gone {
		t.Fatalf("droplet %s was deleted and is there", name)
	}
	if !gone {
		return
	}
	if list, _, err := m.clients[0].Droplets.ListByName(context.Background(), name, nil); err != nil || len(list) == 0 {
		m.must(err)
		_, _, err := m.clients[0].Droplets.Create(context.Background(), &godo.DropletCreateRequest{
			Name: name, Region: "nyc3", Size: "s-1vcpu-1gb", Image: godo.DropletCreateImage{Slug: "debian-13-x64"}})
		m.must(err)
		m.settle()
	}
	m.look()
	for n, d := range m.disks {
		if d.droplet == name {
			d.droplet = ""
			m.disks[n] = d
		}
	}
}

// cycle switches a droplet off and on; its volumes stay.
func (m *apiModel) cycle(t *rapid.T) {
	id, c := m.droplets[rapid.SampledFrom(modelDroplets).Draw(t, "droplet")], m.client()
	if answered, err := m.maybeKilled(func() error { _, _, err := c.DropletActions.PowerCycle(context.Background(), id); return err }); answered {
		m.must(err)
	}
}

// check compares records, devices and links with the model.
func (m *apiModel) check(*rapid.T) {
	ctx, c := context.Background(), m.clients[0]
	volumes, resp, err := c.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: &godo.ListOptions{PerPage: 200}})
	m.must(err)
	if resp.Meta.Total != len(m.disks) {
		m.Fatalf("%d volumes, the model has %d", resp.Meta.Total, len(m.disks))
	}
	droplets, _, err := c.Droplets.List(ctx, nil)
	m.must(err)
	on := map[string]int{}
	for _, d := range droplets {
		for _, v := range d.VolumeIDs {
			on[v] = d.ID
		}
	}
	links := map[string]bool{}
	for _, v := range volumes {
		d, ok := m.disks[v.Name]
		if !ok || d.id != v.ID || d.size != v.SizeGigaBytes || len(v.DropletIDs) > 1 || on[v.ID] != m.droplets[d.droplet] ||
			(d.droplet != "") != (len(v.DropletIDs) == 1) || d.droplet != "" && v.DropletIDs[0] != m.droplets[d.droplet] {
			m.Fatalf("volume %+v, on a droplet's list %d, the model has %+v", v, on[v.ID], d)
		}
		if d.droplet != "" {
			links[m.link(v.Name)] = true
			m.device(v.Name)
		}
	}
	found, err := filepath.Glob(filepath.Join(m.dir, "nodes/*/*"))
	m.must(err)
	for _, l := range found {
		if !links[l] {
			m.Fatalf("link %s belongs to no attachment", l)
		}
	}
	if len(found) != len(links) {
		m.Fatalf("%d links for %d attachments", len(found), len(links))
	}
}

// device checks that a link leads to the volume's own image with its full size.
func (m *apiModel) device(name string) {
	d := m.disks[name]
	target, err := filepath.EvalSymlinks(m.link(name))
	m.must(err)
	image := filepath.Join(m.dir, "cloud/volumes", d.id)
	if m.kind == "loop" {
		raw, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(target), "loop/backing_file"))
		m.must(err)
		target = strings.TrimSpace(string(raw))
	}
	if !strings.HasPrefix(target, image) {
		m.Fatalf("the link of volume %s leads to %s", name, target)
	}
	f, err := os.Open(m.link(name))
	m.must(err)
	defer f.Close()
	if n, err := f.Seek(0, 2); err != nil || n != d.size*fakecloud.GiB {
		m.Fatalf("the device of volume %s has %d bytes, %v", name, n, err)
	}
}

// TestModel lets several unmodified clients play random calls against a cloud in
// another process, which is killed in the middle of them and started again.
func TestModel(t *testing.T) {
	if dir := os.Getenv(victimDir); dir != "" {
		serveVictim(t, dir, os.Getenv(victimKind))
		return
	}
	for _, kind := range []string{"sim", "loop"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "loop" && os.Geteuid() != 0 {
				if os.Getenv("CI") == "true" {
					t.Fatal("loop devices need root, and CI must not skip them")
				}
				t.Skip("loop devices need root")
			}
			rapid.Check(t, func(t *rapid.T) {
				dir, err := os.MkdirTemp("/tmp", "dd")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				m := &apiModel{T: t, dir: dir, kind: kind, disks: map[string]disk{}, snapshots: map[string]disk{}}
				m.start()
				defer func() { m.end() }()
				t.Repeat(map[string]func(*rapid.T){
					"create": m.create, "delete": m.remove, "act": m.act, "act again": m.act, "snapshot": m.snapshot, "delete snapshot": m.removeSnapshot,
					"race": m.race, "lose": m.lose, "cycle": m.cycle, "restart": func(*rapid.T) { m.restart(); m.settle() }, "": m.check,
				})
			})
		})
	}
}
