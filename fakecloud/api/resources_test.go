package api_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

func TestAccountRegionsSizes(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{Volumes: 100}}, func(t *testing.T, w *world) {
		a, resp, err := w.do.Account.Get(w.Context())
		w.must(err)
		if a.VolumeLimit != 100 || a.DropletLimit != 25 || a.Status != "active" || !a.EmailVerified || a.Team == nil || resp.Header.Get("x-request-id") == "" {
			t.Errorf("account %+v", a)
		}
		regions, resp, err := w.do.Regions.List(w.Context(), &godo.ListOptions{PerPage: 50})
		w.must(err)
		if len(regions) != 14 || regions[7].Slug != "nyc3" || regions[7].Name != "New York 3" || !regions[7].Available || len(regions[7].Sizes) == 0 || resp.Meta.Total != 14 {
			t.Errorf("regions %+v", regions)
		}
		sizes, _, err := w.do.Sizes.List(w.Context(), nil)
		w.must(err)
		if len(sizes) == 0 || sizes[0].Slug != "s-1vcpu-1gb" || sizes[0].Memory != 1024 || len(sizes[0].DiskInfo) != 1 {
			t.Errorf("sizes %+v", sizes)
		}
	})
}

func TestDroplets(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		v, u := w.volume("v", 1), w.volume("u", 1)
		d, resp, err := w.do.Droplets.Create(ctx, &godo.DropletCreateRequest{Name: "web-1", Region: "nyc3", Size: "s-1vcpu-1gb",
			Image: godo.DropletCreateImage{Slug: "debian-13-x64"}, Tags: []string{"web"}, Volumes: []godo.DropletCreateVolume{{ID: v.ID}, {Name: "u"}}})
		w.must(err)
		if d.Status != "new" || len(d.VolumeIDs) != 2 || d.Size == nil || d.Image.Slug != "debian-13-x64" || len(resp.Links.Actions) != 1 || resp.Links.Actions[0].Rel != "create" {
			w.Errorf("created %+v, links %+v", d, resp.Links)
		}
		a, _, err := w.do.DropletActions.Get(ctx, d.ID, resp.Links.Actions[0].ID)
		w.must(err)
		_, err = w.cloud.Wait(ctx, fakecloud.ActionID(a.ID))
		w.must(err)
		d, _, err = w.do.Droplets.Get(ctx, d.ID)
		w.must(err)
		ip, _ := d.PublicIPv4()
		if d.Status != "active" || ip == "" || d.Region.Slug != "nyc3" {
			w.Errorf("after its creation: %+v", d)
		}
		by := filepath.Join(w.dir, "nodes/web-1/dev/disk/by-id/scsi-0DO_Volume_")
		for _, name := range []string{"v", "u"} {
			if _, err := os.Stat(by + name); err != nil {
				w.Errorf("the device of %s: %v", name, err)
			}
		}
		_, _, err = w.do.Droplets.Create(ctx, &godo.DropletCreateRequest{Name: "web-2", Region: "nyc3", Size: "s-1vcpu-1gb",
			Image: godo.DropletCreateImage{ID: 7}, Volumes: []godo.DropletCreateVolume{{ID: v.ID}}})
		w.refused(err, 422, "Invalid volume allocations")
		two, _, err := w.do.Droplets.CreateMultiple(ctx, &godo.DropletMultiCreateRequest{Names: []string{"web-3", "web-4"}, Region: "nyc3", Size: "s-1vcpu-1gb",
			Image: godo.DropletCreateImage{ID: 7}, Tags: []string{"web"}})
		w.must(err)
		for what, names := range map[string][]string{"one name is taken": {"web-5", "web-1"}, "one name twice": {"web-5", "web-5"}, "one name is none": {"web-5", "web_6"}} {
			if _, _, err := w.do.Droplets.CreateMultiple(ctx, &godo.DropletMultiCreateRequest{Names: names, Region: "nyc3", Size: "s-1vcpu-1gb", Image: godo.DropletCreateImage{ID: 7}}); err == nil {
				w.Errorf("%s: droplets were made", what)
			}
		}
		all, _, err := w.do.Droplets.ListByTag(ctx, "web", nil)
		w.must(err)
		named, _, err := w.do.Droplets.ListByName(ctx, "web-3", nil)
		w.must(err)
		if len(two) != 2 || len(all) != 3 || len(named) != 1 {
			w.Errorf("%d droplets made, %d tagged, %d of that name", len(two), len(all), len(named))
		}

		// Switched off, its disks are gone from sight and still attached.
		w.completed(w.do.DropletActions.PowerOff(ctx, d.ID))
		if _, err := os.Stat(by + "v"); !errors.Is(err, fs.ErrNotExist) {
			w.Errorf("the device of a droplet that is off: %v", err)
		}
		d, _, err = w.do.Droplets.Get(ctx, d.ID)
		w.must(err)
		if d.Status != "off" || len(d.VolumeIDs) != 2 {
			w.Errorf("off: %+v", d)
		}
		w.completed(w.do.StorageActions.DetachByDropletID(ctx, u.ID, d.ID))
		w.completed(w.do.DropletActions.PowerOn(ctx, d.ID))
		if _, err := os.Stat(by + "v"); err != nil {
			w.Errorf("the device of a droplet that is on again: %v", err)
		}
		if list, _, err := w.do.Droplets.Actions(ctx, d.ID, nil); err != nil || len(list) != 3 || list[0].Type != "power_on" || list[0].ResourceID != d.ID {
			w.Errorf("its actions: %+v, %v", list, err)
		}

		// Deleted, it is gone at once, and its volume a while later.
		hold, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "loop-detach", Volume: "v", Action: lab.Pause})
		w.must(err)
		_, err = w.do.Droplets.Delete(ctx, d.ID)
		w.must(err)
		w.must(hold.WaitFired(ctx, 1))
		_, _, err = w.do.Droplets.Get(ctx, d.ID)
		w.refused(err, 404, notFound)
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.refused(err, 409, "failed to delete volume: attached volume cannot be deleted")
		hold.Release()
		list, _, err := w.do.Actions.List(ctx, nil)
		w.must(err)
		_, err = w.cloud.Wait(ctx, fakecloud.ActionID(list[0].ID))
		w.must(err)
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.must(err)
		_, err = w.do.Droplets.DeleteByTag(ctx, "web")
		w.must(err)
		if left, _, err := w.do.Droplets.List(ctx, nil); err != nil || len(left) != 0 {
			w.Errorf("left: %+v, %v", left, err)
		}
		w.settled()
	})
}

// settled waits for every action in progress.
func (w *world) settled() {
	w.Helper()
	page, _ := w.cloud.Actions(fakecloud.ActionFilter{}, fakecloud.Page{Size: 200})
	for _, a := range page {
		_, err := w.cloud.Wait(w.Context(), a.ID)
		w.must(err)
	}
}

func TestVolumeActionsByName(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		v, n1 := w.volume("v", 1), w.droplet("n1")
		status, body := w.raw("POST", "/v2/volumes/actions", `{"type":"attach","volume_name":"v","region":"nyc3","droplet_id":`+itoa(n1)+`,"tags":["k8s:x"]}`)
		if status != 202 {
			t.Fatalf("attach by name: %d %v", status, body)
		}
		w.settled()
		got, _, err := w.do.Storage.GetVolume(w.Context(), v.ID)
		w.must(err)
		if len(got.DropletIDs) != 1 || len(got.Tags) != 1 {
			t.Errorf("after the attach: %+v", got)
		}
		if status, _ := w.raw("POST", "/v2/volumes/actions", `{"type":"resize","volume_name":"v","region":"nyc3","size_gigabytes":5}`); status != 422 {
			t.Errorf("resize by name: %d", status)
		}
		if status, _ := w.raw("POST", "/v2/volumes/actions", `{"type":"detach","volume_name":"none","region":"nyc3","droplet_id":1}`); status != 404 {
			t.Errorf("an unknown name: %d", status)
		}
		if status, body := w.raw("POST", "/v2/volumes/actions", `{"type":"detach","volume_name":"v","droplet_id":`+itoa(n1)+`}`); status != 202 {
			t.Errorf("detach by name: %d %v", status, body)
		}
		w.settled()
		// The same action, here, there and nowhere else.
		list, _, err := w.do.Actions.List(w.Context(), nil)
		w.must(err)
		a, _, err := w.do.StorageActions.Get(w.Context(), v.ID, list[0].ID)
		w.must(err)
		if a.Type != "detach_volume" || list[0].Type != a.Type || !a.CompletedAt.Equal(*list[0].CompletedAt) {
			t.Errorf("%+v and %+v", a, list[0])
		}
		u := w.volume("u", 1)
		_, _, err = w.do.StorageActions.Get(w.Context(), u.ID, a.ID)
		w.refused(err, 404, notFound)
		_, answer := w.raw("GET", "/v2/actions/"+itoa(a.ID), "")
		if id, ok := answer["action"].(map[string]any)["resource_id"]; !ok || id != nil {
			t.Errorf("the resource id of a volume's action is %v", id)
		}
	})
}

func TestSnapshots(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		v := w.volume("v", 2)
		s, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "s", Description: "d", Tags: []string{"keep"}})
		w.must(err)
		if s.MinDiskSize != 2 || s.ResourceID != v.ID || s.ResourceType != "volume" || len(s.Regions) != 1 || s.Created == "" || len(s.Tags) != 1 {
			w.Errorf("made %+v", s)
		}
		for what, get := range map[string]func() (*godo.Snapshot, *godo.Response, error){
			"snapshots": func() (*godo.Snapshot, *godo.Response, error) { return w.do.Snapshots.Get(ctx, s.ID) },
			"alias":     func() (*godo.Snapshot, *godo.Response, error) { return w.do.Storage.GetSnapshot(ctx, s.ID) },
		} {
			if got, _, err := get(); err != nil || got.Name != "s" {
				w.Errorf("%s: %+v, %v", what, got, err)
			}
		}
		of, _, err := w.do.Storage.ListSnapshots(ctx, v.ID, &godo.ListOptions{Page: 1, PerPage: 50})
		w.must(err)
		all, _, err := w.do.Snapshots.ListVolume(ctx, nil)
		w.must(err)
		droplets, _, err := w.do.Snapshots.ListDroplet(ctx, nil)
		w.must(err)
		if len(of) != 1 || len(all) != 1 || len(droplets) != 0 {
			w.Errorf("%d of the volume, %d of volumes, %d of droplets", len(of), len(all), len(droplets))
		}
		// The size asked for is ignored: the snapshot decides.
		r, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "r", Region: "nyc3", SizeGigaBytes: 9, SnapshotID: s.ID})
		w.must(err)
		if r.SizeGigaBytes != 2 {
			w.Errorf("restored to %d GiB", r.SizeGigaBytes)
		}
		if r, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "nowhere", SnapshotID: s.ID}); err != nil || r.Region.Slug != "nyc3" {
			w.Errorf("restored without a region: %+v, %v", r, err)
		}
		if _, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "far", Region: "ams3", SizeGigaBytes: 2, SnapshotID: s.ID}); err == nil {
			w.Error("a snapshot is restored in another region")
		}
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.must(err)
		if got, _, err := w.do.Snapshots.Get(ctx, s.ID); err != nil || got.ResourceID != v.ID {
			w.Errorf("after its volume is gone: %+v, %v", got, err)
		}
		// The aliases of the documentation; godo has none of them.
		if status, body := w.raw("GET", "/v2/volumes/snapshots/"+s.ID, ""); status != 200 || body["snapshot"] == nil {
			w.Errorf("by its alias: %d %v", status, body)
		}
		second, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: r.ID, Name: "second"})
		w.must(err)
		for range 2 {
			status, _ := w.raw("DELETE", "/v2/volumes/snapshots/"+second.ID, "")
			if _, _, err := w.do.Snapshots.Get(ctx, second.ID); err == nil || status != 204 && status != 404 {
				w.Errorf("deleted by its alias: %d, %v", status, err)
			}
		}
		_, err = w.do.Storage.DeleteSnapshot(ctx, s.ID)
		w.must(err)
		_, err = w.do.Snapshots.Delete(ctx, s.ID)
		w.refused(err, 404, notFound)
	})
}

func TestPreformatted(t *testing.T) {
	each(t, func(w *world) {
		v, _, err := w.do.Storage.CreateVolume(w.Context(), &godo.VolumeCreateRequest{Name: "v", Region: "nyc3", SizeGigaBytes: 1, FilesystemType: "ext4", FilesystemLabel: "data"})
		w.must(err)
		if v.FilesystemType != "ext4" || v.FilesystemLabel != "data" {
			w.Errorf("made %+v", v)
		}
		if w.devices.Kind() == "sim" {
			got, err := os.ReadFile(filepath.Join(w.dir, "cloud/volumes", v.ID+".sim/format"))
			if err != nil || string(got) != "ext4\n" {
				w.Errorf("the format: %q, %v", got, err)
			}
			return
		}
		f, err := os.Open(filepath.Join(w.dir, "cloud/volumes", v.ID+".img"))
		w.must(err)
		defer f.Close()
		magic := make([]byte, 2)
		if _, err := f.ReadAt(magic, 1024+56); err != nil || magic[0] != 0x53 || magic[1] != 0xef {
			w.Errorf("no ext4 on the image: %x, %v", magic, err)
		}
	})
}

func TestTags(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		ctx, v, n1 := w.Context(), w.volume("v", 1), w.droplet("n1")
		for _, name := range []string{"k8s:abc", "K8S:ABC"} {
			tag, resp, err := w.do.Tags.Create(ctx, &godo.TagCreateRequest{Name: name})
			w.must(err)
			if tag.Name != "k8s:abc" || resp.StatusCode != 201 {
				t.Errorf("made %+v, %d", tag, resp.StatusCode)
			}
		}
		both := []godo.Resource{{ID: v.ID, Type: godo.VolumeResourceType}, {ID: itoa(n1), Type: godo.DropletResourceType}}
		resp, err := w.do.Tags.TagResources(ctx, "k8s:abc", &godo.TagResourcesRequest{Resources: both})
		w.must(err)
		if resp.StatusCode != 204 {
			t.Errorf("tagging answers %d", resp.StatusCode)
		}
		got, _, err := w.do.Tags.Get(ctx, "k8s:abc")
		w.must(err)
		if got.Resources.Count != 2 || got.Resources.Volumes.Count != 1 || got.Resources.Droplets.Count != 1 || got.Resources.Volumes.LastTaggedURI != w.server.URL+"/v2/volumes/"+v.ID {
			t.Errorf("tag %+v", got.Resources)
		}
		_, err = w.do.Tags.UntagResources(ctx, "k8s:abc", &godo.UntagResourcesRequest{Resources: both[1:]})
		w.must(err)
		u, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "u", Region: "nyc3", SizeGigaBytes: 1, Tags: []string{"new", "k8s:abc"}})
		w.must(err)
		list, _, err := w.do.Tags.List(ctx, nil)
		w.must(err)
		if len(list) != 2 || list[0].Name != "k8s:abc" || list[0].Resources.Count != 2 || list[1].Name != "new" {
			t.Errorf("tags %+v", list)
		}
		_, err = w.do.Tags.Delete(ctx, "k8s:abc")
		w.must(err)
		after, _, err := w.do.Storage.GetVolume(ctx, u.ID)
		w.must(err)
		if len(after.Tags) != 1 || after.Tags[0] != "new" {
			t.Errorf("tags of u: %v", after.Tags)
		}
		w.must(w.cloud.Close())
		w.reopen(fakecloud.Config{})
		if list, _, err := w.do.Tags.List(ctx, nil); err != nil || len(list) != 1 {
			t.Errorf("after a restart: %+v, %v", list, err)
		}
	})
}
