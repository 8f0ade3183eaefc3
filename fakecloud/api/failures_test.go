package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

const notFound = "The resource you were accessing could not be found."

// The failure table of the API, row by row, each with its status and text.

func TestUnauthorized(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		_, _, err := w.client("wrong").Account.Get(w.Context())
		w.refused(err, 401, "Unable to authenticate you")
		_, _, err = w.client("").Account.Get(w.Context())
		w.refused(err, 401, "Unable to authenticate you")
	})
}

func TestUnknown(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		ctx, v, n1 := w.Context(), w.volume("v", 1), w.droplet("n1")
		calls := map[string]func() error{
			"volume":          func() error { _, _, err := w.do.Storage.GetVolume(ctx, "nope"); return err },
			"delete volume":   func() error { _, err := w.do.Storage.DeleteVolume(ctx, "nope"); return err },
			"attach volume":   func() error { _, _, err := w.do.StorageActions.Attach(ctx, "nope", n1); return err },
			"attach droplet":  func() error { _, _, err := w.do.StorageActions.Attach(ctx, v.ID, 7); return err },
			"detach droplet":  func() error { _, _, err := w.do.StorageActions.DetachByDropletID(ctx, v.ID, 7); return err },
			"resize volume":   func() error { _, _, err := w.do.StorageActions.Resize(ctx, "nope", 2, "nyc3"); return err },
			"volume actions":  func() error { _, _, err := w.do.StorageActions.List(ctx, "nope", nil); return err },
			"volume action":   func() error { _, _, err := w.do.StorageActions.Get(ctx, v.ID, 7); return err },
			"action":          func() error { _, _, err := w.do.Actions.Get(ctx, 7); return err },
			"droplet":         func() error { _, _, err := w.do.Droplets.Get(ctx, 7); return err },
			"delete droplet":  func() error { _, err := w.do.Droplets.Delete(ctx, 7); return err },
			"power droplet":   func() error { _, _, err := w.do.DropletActions.PowerOff(ctx, 7); return err },
			"snapshot":        func() error { _, _, err := w.do.Snapshots.Get(ctx, "nope"); return err },
			"number snapshot": func() error { _, _, err := w.do.Snapshots.Get(ctx, "12345"); return err },
			"delete snapshot": func() error { _, err := w.do.Snapshots.Delete(ctx, "nope"); return err },
			"snapshot alias":  func() error { _, _, err := w.do.Storage.GetSnapshot(ctx, "nope"); return err },
			"list snapshots":  func() error { _, _, err := w.do.Storage.ListSnapshots(ctx, "nope", nil); return err },
			"make snapshot": func() error {
				_, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: "nope", Name: "s"})
				return err
			},
			"restore": func() error {
				_, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "r", Region: "nyc3", SnapshotID: "nope"})
				return err
			},
			"tag":        func() error { _, _, err := w.do.Tags.Get(ctx, "nope"); return err },
			"delete tag": func() error { _, err := w.do.Tags.Delete(ctx, "nope"); return err },
			"tag resources": func() error {
				_, err := w.do.Tags.TagResources(ctx, "nope", &godo.TagResourcesRequest{Resources: []godo.Resource{{ID: v.ID, Type: godo.VolumeResourceType}}})
				return err
			},
			"unknown route":  func() error { _, _, err := w.do.Kubernetes.List(ctx, nil); return err },
			"unknown method": func() error { _, _, err := w.do.Keys.Create(ctx, &godo.KeyCreateRequest{}); return err },
		}
		for name, call := range calls {
			t.Run(name, func(*testing.T) { w.refused(call(), 404, notFound) })
		}
	})
}

// create asks for a volume and returns the refusal.
func (w *world) create(r godo.VolumeCreateRequest) error {
	_, _, err := w.do.Storage.CreateVolume(w.Context(), &r)
	return err
}

func TestCreateRefused(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{CapacityGiB: 20000, Volumes: 3}}, func(t *testing.T, w *world) {
		w.volume("taken", 1)
		const badName = "failed to create volume: invalid volume name. names must be lowercase and alphanumeric"
		for _, c := range []struct {
			what    string
			r       godo.VolumeCreateRequest
			status  int
			message string
		}{
			{"taken", godo.VolumeCreateRequest{Name: "taken", Region: "nyc3", SizeGigaBytes: 1}, 409, "failed to create volume: already exists"},
			{"upper case", godo.VolumeCreateRequest{Name: "Upper", Region: "nyc3", SizeGigaBytes: 1}, 422, badName},
			{"underscore", godo.VolumeCreateRequest{Name: "a_b", Region: "nyc3", SizeGigaBytes: 1}, 422, badName},
			{"digit first", godo.VolumeCreateRequest{Name: "1a", Region: "nyc3", SizeGigaBytes: 1}, 422, badName},
			{"65 characters", godo.VolumeCreateRequest{Name: strings.Repeat("a", 65), Region: "nyc3", SizeGigaBytes: 1}, 422, badName},
			{"no name", godo.VolumeCreateRequest{Region: "nyc3", SizeGigaBytes: 1}, 422, "failed to create volume: name is required"},
			{"no region", godo.VolumeCreateRequest{Name: "a", SizeGigaBytes: 1}, 422, "failed to create volume: region is required"},
			{"bad region", godo.VolumeCreateRequest{Name: "a", Region: "moon1", SizeGigaBytes: 1}, 422, `failed to create volume: region "moon1" does not exist`},
			{"size 0", godo.VolumeCreateRequest{Name: "a", Region: "nyc3"}, 422, "failed to create volume: size_gigabytes must be between 1 and 16384, not 0"},
			{"20 TiB", godo.VolumeCreateRequest{Name: "a", Region: "nyc3", SizeGigaBytes: 20480}, 422, "failed to create volume: size_gigabytes must be between 1 and 16384, not 20480"},
			{"bad filesystem", godo.VolumeCreateRequest{Name: "a", Region: "nyc3", SizeGigaBytes: 1, FilesystemType: "ntfs"}, 422, `failed to create volume: filesystem_type must be ext4 or xfs, not "ntfs"`},
			{"long label", godo.VolumeCreateRequest{Name: "a", Region: "nyc3", SizeGigaBytes: 1, FilesystemType: "xfs", FilesystemLabel: "abcdefghijklm"}, 422, "failed to create volume: filesystem_label of xfs must not be longer than 12 characters"},
			{"label alone", godo.VolumeCreateRequest{Name: "a", Region: "nyc3", SizeGigaBytes: 1, FilesystemLabel: "x"}, 422, "failed to create volume: filesystem_label needs a filesystem_type"},
		} {
			t.Run(c.what, func(*testing.T) { w.refused(w.create(c.r), c.status, c.message) })
		}
		v := w.volume("big", 16384)
		const quota = "failed to create volume: volume/snapshot capacity limit exceeded"
		w.refused(w.create(godo.VolumeCreateRequest{Name: "over", Region: "nyc3", SizeGigaBytes: 16384}), 403, quota)
		w.volume("third", 1)
		w.refused(w.create(godo.VolumeCreateRequest{Name: "fourth", Region: "nyc3", SizeGigaBytes: 1}), 403, quota)
		_, _, err := w.do.StorageActions.Resize(w.Context(), v.ID, 16385, "nyc3")
		w.refused(err, 422, "error resizing volume: size_gigabytes must not be larger than 16384, not 16385")
		s := w.cloud.Settings()
		s.Limits.CapacityGiB = 16386
		w.cloud.Configure(s)
		third, _, err := w.do.Storage.ListVolumes(w.Context(), &godo.ListVolumeParams{Name: "third"})
		w.must(err)
		_, _, err = w.do.StorageActions.Resize(w.Context(), third[0].ID, 2, "nyc3")
		w.refused(err, 403, "error resizing volume: volume/snapshot capacity limit exceeded")
		a, err := w.cloud.Volume(fakecloud.VolumeID(v.ID))
		w.must(err)
		if a.SizeGiB != 16384 {
			t.Errorf("the volume has %d GiB", a.SizeGiB)
		}
	})
}

// raw sends a body that godo would not.
func (w *world) raw(method, path, body string) (status int, answer map[string]any) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.server.URL+path, strings.NewReader(body))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := w.do.HTTPClient.Do(r)
	w.must(err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	w.must(err)
	if len(bytes.TrimSpace(data)) > 0 {
		w.must(json.Unmarshal(data, &answer))
	}
	return resp.StatusCode, answer
}

func TestMalformed(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		v := w.volume("v", 1)
		for _, body := range []string{"", "{", "[]", `{"size_gigabytes":"ten"}`, `{"name":7}`, `{"type":7}`} {
			for _, path := range []string{"/v2/volumes", "/v2/volumes/" + v.ID + "/actions"} {
				if path == "/v2/volumes" && body == `{"type":7}` || path != "/v2/volumes" && body == `{"name":7}` {
					continue // a field of another call
				}
				status, answer := w.raw("POST", path, body)
				if status != 400 || answer["message"] != "error parsing request body" || answer["id"] != "bad_request" || answer["request_id"] == "" {
					t.Errorf("POST %s %q: %d %v", path, body, status, answer)
				}
			}
		}
		if status, _ := w.raw("POST", "/v2/volumes", `{"name":"`+strings.Repeat("a", 2<<20)+`"}`); status != 413 {
			t.Errorf("2 MiB: %d", status)
		}
		if status, answer := w.raw("POST", "/v2/volumes", `{"name":"ok","region":"nyc3","size_gigabytes":1,"tags":null,"snapshot_id":"","filesystem_type":"","filesystem_label":"","colour":"red"}`); status != 201 {
			t.Errorf("nulls, blanks and unknown fields: %d %v", status, answer)
		}
		if status, answer := w.raw("POST", "/v2/tags", `{"name":"a b"}`); status != 400 || answer["error"] == nil || answer["root_causes"] == nil {
			t.Errorf("a bad tag: %d %v", status, answer)
		}
		if status, _ := w.raw("DELETE", "/v2/volumes?name=v", ""); status != 422 {
			t.Errorf("delete by name alone: %d", status)
		}
		if status, answer := w.raw("DELETE", "/v2/volumes?name=v&region=nyc3", ""); status != 204 {
			t.Errorf("delete by name: %d %v", status, answer)
		}
	})
}

func TestActionRefused(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{VolumesPerDroplet: 2}}, func(t *testing.T, w *world) {
		ctx, n1, n2 := w.Context(), w.droplet("n1"), w.droplet("n2")
		v, u, x := w.volume("v", 2), w.volume("u", 1), w.volume("x", 1)
		_, _, err := w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1)
		w.refused(err, 404, "error detaching volume from droplet: volume is not attached to droplet")
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		for _, n := range []int{n1, n2} {
			_, _, err = w.do.StorageActions.Attach(ctx, v.ID, n)
			w.refused(err, 422, "This volume is already attached")
		}
		_, _, err = w.do.StorageActions.DetachByDropletID(ctx, v.ID, n2)
		w.refused(err, 404, "error detaching volume from droplet: volume is not attached to droplet")
		_, _, err = w.do.StorageActions.DetachByDropletID(ctx, v.ID, 0)
		w.refused(err, 422, "Attachment not found")
		s := w.cloud.Settings()
		s.Limits.DetachInvalid = true
		w.cloud.Configure(s)
		_, _, err = w.do.StorageActions.DetachByDropletID(ctx, v.ID, n2)
		w.refused(err, 422, "Attachment not found")

		w.completed(w.do.StorageActions.Attach(ctx, u.ID, n1))
		_, _, err = w.do.StorageActions.Attach(ctx, x.ID, n1)
		w.refused(err, 422, "cannot attach more volumes to the Droplet")

		for size, text := range map[int]string{
			2: "error resizing volume: size_gigabytes must be larger than the current 2, not 2",
			1: "error resizing volume: size_gigabytes must be larger than the current 2, not 1",
		} {
			_, _, err = w.do.StorageActions.Resize(ctx, v.ID, size, "nyc3")
			w.refused(err, 422, text)
		}
		_, _, err = w.do.StorageActions.Resize(ctx, v.ID, 3, "ams3")
		w.refused(err, 422, "volume "+v.ID+" is in region nyc3, not in ams3")
		w.completed(w.do.StorageActions.Resize(ctx, v.ID, 3, ""))

		far, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "v", Region: "ams3", SizeGigaBytes: 1})
		w.must(err)
		if _, _, err = w.do.StorageActions.Attach(ctx, far.ID, n2); err == nil {
			t.Error("a volume is attached across regions")
		}
		if status, _ := w.raw("POST", "/v2/volumes/"+v.ID+"/actions", `{"type":"explode"}`); status != 422 {
			t.Errorf("an unknown action type: %d", status)
		}
	})
}

// TestPendingEvent holds an attach and asks for more on the same droplet and volume.
func TestPendingEvent(t *testing.T) {
	const pending = "Droplet already has a pending event."
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		ctx, n1, n2 := w.Context(), w.droplet("n1"), w.droplet("n2")
		v, u := w.volume("v", 1), w.volume("u", 1)
		hold, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "loop-attach", Volume: "v", Action: lab.Pause})
		w.must(err)
		a, resp, err := w.do.StorageActions.Attach(ctx, v.ID, n1)
		w.must(err)
		w.must(hold.WaitFired(ctx, 1))
		for what, call := range map[string]func() error{
			"attach another":  func() error { _, _, err := w.do.StorageActions.Attach(ctx, u.ID, n1); return err },
			"attach again":    func() error { _, _, err := w.do.StorageActions.Attach(ctx, v.ID, n1); return err },
			"attach there":    func() error { _, _, err := w.do.StorageActions.Attach(ctx, v.ID, n2); return err },
			"detach":          func() error { _, _, err := w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1); return err },
			"resize":          func() error { _, _, err := w.do.StorageActions.Resize(ctx, v.ID, 2, "nyc3"); return err },
			"delete droplet":  func() error { _, err := w.do.Droplets.Delete(ctx, n1); return err },
			"power off":       func() error { _, _, err := w.do.DropletActions.PowerOff(ctx, n1); return err },
			"detach from any": func() error { _, _, err := w.do.StorageActions.DetachByDropletID(ctx, v.ID, n2); return err },
		} {
			t.Run(what, func(*testing.T) { w.refused(call(), 422, pending) })
		}
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.refused(err, 409, "failed to delete volume: attached volume cannot be deleted")
		w.completed(w.do.StorageActions.Attach(ctx, u.ID, n2)) // another droplet is free

		s := w.cloud.Settings()
		s.Limits.NoDropletLock = true
		w.cloud.Configure(s)
		w.completed(w.do.StorageActions.DetachByDropletID(ctx, u.ID, n2))
		w.completed(w.do.StorageActions.Attach(ctx, u.ID, n1))
		hold.Release()
		w.completed(a, resp, nil)
	})
}

func TestSnapshotRefused(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{SnapshotsPerVolume: 3}}, func(t *testing.T, w *world) {
		v, u := w.volume("v", 1), w.volume("u", 1)
		snap := func(v *godo.Volume, name string) (*godo.Snapshot, error) {
			s, _, err := w.do.Storage.CreateSnapshot(w.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: name})
			return s, err
		}
		_, err := snap(v, "s1")
		w.must(err)
		for _, x := range []*godo.Volume{v, u} {
			_, err = snap(x, "s1")
			w.refused(err, 409, "already exists")
		}
		_, err = snap(v, "")
		w.refused(err, 422, "failed to create snapshot: name is required")

		s := w.cloud.Settings()
		s.Limits.SnapshotInterval = 10 * time.Minute
		w.cloud.Configure(s)
		_, err = snap(v, "s2")
		w.refused(err, 429, "failed to create snapshot: this operation is rate-limited - one request per 10m0s")
		w.lab.Clock.(*lab.Clock).Advance(11 * time.Minute) // the wall clock may step meanwhile
		_, err = snap(v, "s2")
		w.must(err)
		s.Limits.SnapshotInterval = 0
		w.cloud.Configure(s)
		_, err = snap(v, "s3")
		w.must(err)
		_, err = snap(v, "s4")
		w.refused(err, 422, "failed to create snapshot: a volume cannot have more than 3 snapshots")
	})
}

func TestRateLimit(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{Rate: fakecloud.Rate{Hourly: 8, Burst: 5}}}, func(t *testing.T, w *world) {
		ctx := w.Context()
		get := func() (*godo.Response, error) { _, resp, err := w.do.Account.Get(ctx); return resp, err }
		for i := range 10 {
			resp, err := get()
			w.must(err)
			if resp.Rate.Limit != 8 || resp.Rate.Remaining != max(0, 7-i) || !resp.Rate.Reset.After(time.Now()) {
				t.Errorf("request %d: %+v", i, resp.Rate)
			}
		}
		clock := w.lab.Clock.(*lab.Clock)
		clock.Advance(2 * time.Hour)
		s := w.cloud.Settings()
		s.Limits.Rate.Enforce = true
		w.cloud.Configure(s)
		for range 5 {
			_, err := get()
			w.must(err)
		}
		resp, err := get()
		w.refused(err, 429, "API Rate limit exceeded.")
		if resp.Header.Get("retry-after") == "" {
			t.Error("no retry-after")
		}
		clock.Advance(2 * time.Minute)
		for range 3 {
			_, err := get()
			w.must(err)
		}
		_, err = get()
		w.refused(err, 429, "API Rate limit exceeded.")
	})
}
