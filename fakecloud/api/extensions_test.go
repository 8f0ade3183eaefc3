package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/internal/lab"
)

// own asks for something under our own prefix, through godo's client.
func (w *world) own(method, path string, body, into any) error {
	w.Helper()
	r, err := w.do.NewRequest(w.Context(), method, "v2/drydock"+path, body)
	w.must(err)
	_, err = w.do.Do(w.Context(), r, into)
	return err
}

type extended struct {
	Volume struct {
		godo.Volume
		MultiAttach bool                  `json:"multi_attach"`
		ReadOnly    bool                  `json:"read_only"`
		Performance fakecloud.Performance `json:"performance"`
	}
	Enforced bool
	WhyNot   string `json:"why_not"`
}

func TestSettingsAPI(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	var got struct{ Settings fakecloud.Settings }
	patch := map[string]any{"latency": map[string]any{"attach": "200ms..500ms"}, "limits": map[string]any{"volumes": 1}}
	w.must(w.own("PATCH", "/settings", patch, &got))
	if got.Settings.Latency.Attach.Max != 500*time.Millisecond || got.Settings.Limits.Volumes != 1 {
		t.Errorf("changed to %+v", got.Settings)
	}
	w.volume("v", 1)
	w.refused(w.create(godo.VolumeCreateRequest{Name: "u", Region: "nyc3", SizeGigaBytes: 1}), 403, fakecloud.TextCreateQuota)
	w.refused(w.own("PATCH", "/settings", map[string]any{"colour": "red"}, nil), 422, `settings: json: unknown field "colour"`)
	w.must(w.own("GET", "/settings", nil, &got))
	if got.Settings != w.cloud.Settings() {
		t.Errorf("shown %+v, in force %+v", got.Settings, w.cloud.Settings())
	}
	w.must(w.own("DELETE", "/settings", nil, &got))
	if got.Settings.Limits.Volumes != 0 {
		t.Errorf("reset to %+v", got.Settings)
	}
	w.volume("u", 1)
}

func TestState(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		v, n1 := w.volume("v", 3), w.droplet("n1")
		w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
		_, _, err := w.do.Storage.CreateSnapshot(w.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "s", Tags: []string{"t"}})
		w.must(err)
		var got struct {
			Region   string
			Volumes  []godo.Volume
			Droplets []godo.Droplet
			Actions  []struct {
				Volume  string `json:"volume_id"`
				Droplet int    `json:"droplet_id"`
			}
			Snapshots []godo.Snapshot
			Tags      []godo.Tag
		}
		w.must(w.own("GET", "/state", nil, &got))
		if got.Region != "nyc3" || len(got.Volumes) != 1 || len(got.Droplets) != 1 || len(got.Snapshots) != 1 || len(got.Tags) != 1 || len(got.Actions) != 1 ||
			got.Actions[0].Volume != v.ID || got.Actions[0].Droplet != n1 || got.Droplets[0].VolumeIDs[0] != v.ID {
			t.Errorf("state %+v", got)
		}
		var left struct{ Leftovers []map[string]string }
		w.must(w.own("GET", "/leftovers", nil, &left))
		if len(left.Leftovers) != 0 {
			t.Errorf("left over: %v", left)
		}
		var bill struct {
			Costs []struct {
				Kind, Name string
				Month      float64 `json:"usd_month"`
			}
			Total float64 `json:"usd_month"`
		}
		w.must(w.own("GET", "/costs", nil, &bill))
		if len(bill.Costs) != 3 || bill.Costs[0].Month < 0.299 || bill.Costs[0].Month > 0.301 || bill.Costs[1].Month != 0.01 || bill.Total < 6.309 || bill.Total > 6.311 { // the snapshot costs the least there is
			t.Errorf("costs %+v", bill)
		}
	})
}

func TestRequestLogAPI(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	type answer struct {
		Requests []struct {
			Seq                         int64
			Method, Path, Route, Caller string
			Status                      int
			Volume, Fault, ID           string
			Duration                    float64 `json:"duration_ms"`
		}
		Next int64
	}
	w.volume("v", 1)
	_, _, err := w.do.Storage.GetVolume(w.Context(), "nope")
	w.refused(err, 404, notFound)
	var all answer
	w.must(w.own("GET", "/requests", nil, &all))
	if len(all.Requests) != 2 || all.Next != 2 || all.Requests[0].Method != "POST" || all.Requests[0].Status != 201 || all.Requests[0].Caller != "godo" ||
		all.Requests[0].Volume != "v" || all.Requests[0].Duration <= 0 || all.Requests[1].Route != "/v2/volumes/{id}" || all.Requests[1].Status != 404 {
		t.Errorf("log %+v", all)
	}
	for query, want := range map[string]int{"method=post": 1, "status=404": 1, "path=/v2/volumes/*": 1, "route=/v2/volumes/{id}": 1, "caller=nobody": 0, "since=1": 1, "volume=v": 1} {
		var some answer
		w.must(w.own("GET", "/requests?"+query, nil, &some))
		if len(some.Requests) != want {
			t.Errorf("?%s: %+v", query, some.Requests)
		}
	}
	for _, bad := range []string{"status=ok", "path=[", "since=-1"} {
		if err := w.own("GET", "/requests?"+bad, nil, nil); err == nil {
			t.Errorf("?%s is taken", bad)
		}
	}
	// Waiting for what has not happened yet.
	waiting := make(chan answer, 1)
	go func() {
		r, _ := http.NewRequestWithContext(w.Context(), "GET", w.server.URL+"/v2/drydock/requests?at_least=1&method=DELETE", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Prefer", "wait=20")
		var got answer
		if resp, err := w.do.HTTPClient.Do(r); err == nil {
			_ = json.NewDecoder(resp.Body).Decode(&got)
			resp.Body.Close()
		}
		waiting <- got
	}()
	_, err = w.do.Storage.DeleteVolume(w.Context(), "nope")
	w.refused(err, 404, notFound)
	if got := <-waiting; len(got.Requests) != 1 || got.Requests[0].Method != "DELETE" {
		t.Errorf("waited for %+v", got)
	}
	w.must(w.own("DELETE", "/requests", nil, nil))
	w.must(w.own("GET", "/requests", nil, &all))
	if len(all.Requests) != 0 || all.Next != 3 {
		t.Errorf("after the clearing: %+v", all)
	}
}

// TestLogIsBounded: the oldest entries go, the numbers go on.
func TestLogIsBounded(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	var log api.Log
	h := api.New(w.cloud, api.Config{Token: token, Requests: &log})
	const n = 20100
	for range n {
		h.ServeHTTP(discard{http.Header{}}, request("/v2/account"))
	}
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	got, next := log.Wait(ctx, 0, api.RequestFilter{}, 0)
	if next != n || len(got) != 20000 || got[0].Seq != 100 || got[len(got)-1].Seq != n-1 {
		t.Errorf("%d entries, next %d, from %d to %d", len(got), next, got[0].Seq, got[len(got)-1].Seq)
	}
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header       { return d.h }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

func request(path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func TestClone(t *testing.T) {
	each(t, func(w *world) {
		ctx, v, n1 := w.Context(), w.volume("v", 1), w.droplet("n1")
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		by := filepath.Join(w.dir, "nodes/n1/dev/disk/by-id/scsi-0DO_Volume_")
		text := []byte(strings.Repeat("cloned ", 10000))
		writeAt(w, by+"v", text, 5<<20)
		var made extended
		w.must(w.own("POST", "/volumes/"+v.ID+"/clone", map[string]any{"name": "c", "size_gigabytes": 2, "performance": map[string]any{"class": "fast"}}, &made))
		if made.Volume.SizeGigaBytes != 2 || len(made.Volume.DropletIDs) != 0 || made.Volume.Performance.IOPS != 7500 {
			w.Errorf("clone %+v", made)
		}
		writeAt(w, by+"v", make([]byte, len(text)), 5<<20) // the clone does not follow
		w.completed(w.do.StorageActions.Attach(ctx, made.Volume.ID, n1))
		if got := readAt(w, by+"c", len(text), 5<<20); got != string(text) {
			w.Error("the clone does not hold what its source held")
		}
		for what, body := range map[string]map[string]any{
			"smaller": {"name": "d", "size_gigabytes": 0.5}, "far": {"name": "d", "region": "ams3"}, "taken": {"name": "c"}, "bad class": {"name": "d", "performance": map[string]any{"class": "x"}},
		} {
			if err := w.own("POST", "/volumes/"+v.ID+"/clone", body, nil); err == nil {
				w.Errorf("%s: a clone was made", what)
			}
		}
		w.refused(w.own("POST", "/volumes/nope/clone", map[string]any{"name": "d"}, nil), 404, notFound)
	})
}

func writeAt(w *world, path string, b []byte, off int64) {
	w.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	w.must(err)
	_, err = f.WriteAt(b, off)
	w.must(err)
	w.must(f.Sync())
	w.must(f.Close())
}

func readAt(w *world, path string, n int, off int64) string {
	w.Helper()
	f, err := os.Open(path)
	w.must(err)
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, off)
	w.must(err)
	return string(b)
}

func TestMultiAttach(t *testing.T) {
	each(t, func(w *world) {
		ctx, v, n1, n2 := w.Context(), w.volume("v", 1), w.droplet("n1"), w.droplet("n2")
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		_, _, err := w.do.StorageActions.Attach(ctx, v.ID, n2)
		w.refused(err, 422, "This volume is already attached")
		var got extended
		w.must(w.own("PATCH", "/volumes/"+v.ID, map[string]any{"multi_attach": true}, &got))
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n2))
		_, _, err = w.do.StorageActions.Attach(ctx, v.ID, n2)
		w.refused(err, 422, "This volume is already attached")
		w.must(w.own("GET", "/volumes/"+v.ID, nil, &got))
		if len(got.Volume.DropletIDs) != 2 || !got.Volume.MultiAttach {
			w.Errorf("on two droplets: %+v", got)
		}
		link := func(n string) string { return filepath.Join(w.dir, "nodes", n, "dev/disk/by-id/scsi-0DO_Volume_v") }
		writeAt(w, link("n1"), []byte("seen by both"), 4096)
		if s := readAt(w, link("n2"), 12, 4096); s != "seen by both" {
			w.Errorf("the other droplet reads %q", s)
		}
		w.noLeftovers()
		w.refused(w.own("PATCH", "/volumes/"+v.ID, map[string]any{"multi_attach": false}, nil), 409, "volume "+v.ID+" is attached to 2 droplets")

		// It outlives a restart of the cloud and of the machine.
		w.must(w.cloud.Close())
		w.reopen(fakecloud.Config{})
		w.noLeftovers()
		for _, n := range []int{n1, n2} {
			if d, _, err := w.do.Droplets.Get(ctx, n); err != nil || len(d.VolumeIDs) != 1 {
				w.Errorf("droplet %+v, %v", d, err)
			}
		}
		w.completed(w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1))
		if _, err := os.Lstat(link("n1")); err == nil {
			w.Error("the link stays after the detach")
		}
		if s := readAt(w, link("n2"), 12, 4096); s != "seen by both" {
			w.Errorf("after the other's detach it reads %q", s)
		}
		w.noLeftovers()
		// A droplet that goes takes only its own share.
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		_, err = w.do.Droplets.Delete(ctx, n2)
		w.must(err)
		w.settled()
		if d, _, err := w.do.Storage.GetVolume(ctx, v.ID); err != nil || len(d.DropletIDs) != 1 || d.DropletIDs[0] != n1 {
			w.Errorf("volume %+v, %v", d, err)
		}
		w.noLeftovers()
	})
}

func TestReadOnlyAttach(t *testing.T) {
	each(t, func(w *world) {
		v, n1 := w.volume("v", 1), w.droplet("n1")
		var a struct{ Action *godo.Action }
		w.must(w.own("POST", "/volumes/"+v.ID+"/actions", map[string]any{"type": "attach", "droplet_id": n1, "read_only": true}, &a))
		w.completed(a.Action, nil, nil)
		link := filepath.Join(w.dir, "nodes/n1/dev/disk/by-id/scsi-0DO_Volume_v")
		written := func() bool {
			info, err := os.Stat(link)
			w.must(err)
			f, err := os.OpenFile(link, os.O_RDWR, 0)
			if err != nil {
				return false
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("x"), 0)
			// Root writes a file of any mode.
			return err == nil && f.Sync() == nil && !(w.devices.Kind() == "sim" && info.Mode().Perm() == 0o400)
		}
		if written() {
			w.Error("a read-only device was written")
		}
		w.must(w.cloud.Close())
		w.reopen(fakecloud.Config{})
		var got extended
		w.must(w.own("GET", "/volumes/"+v.ID, nil, &got))
		if !got.Volume.ReadOnly || written() {
			w.Errorf("after a restart: %+v", got)
		}
		w.completed(w.do.StorageActions.DetachByDropletID(w.Context(), v.ID, n1))
		w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
		if !written() {
			w.Error("the next attach is read-only as well")
		}
	})
}

func TestChanges(t *testing.T) {
	each(t, func(w *world) {
		ctx, v, n1 := w.Context(), w.volume("v", 1), w.droplet("n1")
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		link := filepath.Join(w.dir, "nodes/n1/dev/disk/by-id/scsi-0DO_Volume_v")
		snap := func(name string) string {
			s, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: name})
			w.must(err)
			return s.ID
		}
		filled := []byte(strings.Repeat("x", 64<<10))
		writeAt(w, link, filled, 1<<20)
		writeAt(w, link, filled, 8<<20)
		one := snap("one")
		writeAt(w, link, []byte("one block"), 1<<20+4096)
		writeAt(w, link, make([]byte, len(filled)), 8<<20) // blank again
		writeAt(w, link, filled, 512<<20)
		two := snap("two")
		for query, want := range map[string]string{
			one:                  `[{"length":65536,"offset":1048576},{"length":65536,"offset":8388608}]`,
			two + "?base=" + one: `[{"length":4096,"offset":1052672},{"length":65536,"offset":8388608},{"length":65536,"offset":536870912}]`,
			two + "?base=" + two: `[]`,
		} {
			path, base, _ := strings.Cut(query, "?")
			var got struct {
				Changes json.RawMessage
				Total   int64 `json:"total_bytes"`
			}
			w.must(w.own("GET", "/snapshots/"+path+"/changes?"+base, nil, &got))
			if string(got.Changes) != want {
				w.Errorf("changes of %s: %s, want %s", query, got.Changes, want)
			}
		}
		u := w.volume("u", 1)
		s, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: u.ID, Name: "other"})
		w.must(err)
		w.refused(w.own("GET", "/snapshots/"+s.ID+"/changes?base="+one, nil, nil), 422, "snapshots "+s.ID+" and "+one+" are of two volumes")
		w.refused(w.own("GET", "/snapshots/"+one+"/changes?base=nope", nil, nil), 404, notFound)
	})
}

func TestPerformance(t *testing.T) {
	each(t, func(w *world) {
		v, n1 := w.volume("v", 1), w.droplet("n1")
		var got extended
		set := func(p map[string]any) error {
			return w.own("PATCH", "/volumes/"+v.ID, map[string]any{"performance": p}, &got)
		}
		w.must(set(map[string]any{"class": "basic", "throughput_mibs": 50}))
		if p := got.Volume.Performance; p.IOPS != 3000 || p.ThroughputMiBs != 50 || got.Enforced || got.WhyNot == "" {
			w.Errorf("set to %+v", got)
		}
		w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
		w.must(set(map[string]any{"iops": 20}))
		if got.Enforced == (got.WhyNot != "") || got.Enforced && w.devices.Kind() == "sim" {
			w.Errorf("set to %+v", got)
		}
		w.Logf("%s: enforced %v %s", w.devices.Kind(), got.Enforced, got.WhyNot)
		// Every attach sets it anew, and one that cannot be set does not keep the volume away.
		if w.devices.Kind() == "loop" {
			h, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "limit", Volume: "v", Action: lab.Fail, Code: "EPERM"})
			w.must(err)
			w.completed(w.do.StorageActions.DetachByDropletID(w.Context(), v.ID, n1))
			w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
			if h.Fired() != 1 {
				w.Errorf("the attach set the limit %d times", h.Fired())
			}
			w.must(set(map[string]any{"iops": 30}))
			if got.Enforced || !strings.Contains(got.WhyNot, "operation not permitted") {
				w.Errorf("a limit that was refused: %+v", got)
			}
			h.Remove()
		}
		w.refused(set(map[string]any{"class": "warp"}), 422, `performance class "warp" is none of basic, fast, extreme and infinite`)
		w.refused(set(map[string]any{"iops": -1}), 422, "iops and throughput_mibs must not be negative")
		var classes struct{ Classes []fakecloud.Performance }
		w.must(w.own("GET", "/classes", nil, &classes))
		if len(classes.Classes) != 4 {
			w.Errorf("classes %+v", classes)
		}
	})
}

// TestCopiesInProgress holds a snapshot and sees it listed.
func TestCopiesInProgress(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	v := w.volume("v", 1)
	hold, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "copy", Action: lab.Pause})
	w.must(err)
	made := make(chan error, 1)
	go func() {
		_, _, err := w.do.Storage.CreateSnapshot(w.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "s"})
		made <- err
	}()
	w.must(hold.WaitFired(w.Context(), 1))
	var got struct {
		Copies []struct {
			Kind, Name string
		}
	}
	w.must(w.own("GET", "/copies", nil, &got))
	if len(got.Copies) != 1 || got.Copies[0].Kind != "snapshot" || got.Copies[0].Name != "s" {
		t.Errorf("copies %+v", got)
	}
	hold.Release()
	w.must(<-made)
	w.must(w.own("GET", "/copies", nil, &got))
	if len(got.Copies) != 0 {
		t.Errorf("afterwards %+v", got)
	}
}

// TestFaultsAPI: a driver's author breaks the cloud from outside.
func TestFaultsAPI(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	type answer struct {
		Fault struct {
			ID    string
			Fired int
		}
		Faults []struct {
			ID    string
			Fired int
		}
	}
	var added, got answer
	w.must(w.own("POST", "/faults", map[string]any{"action": "fail", "code": "503", "times": 1}, &added)) // matches everything
	_, _, err := w.do.Account.Get(w.Context())
	w.refused(err, 503, "Service unavailable")
	_, _, err = w.do.Account.Get(w.Context())
	w.must(err)
	w.must(w.own("GET", "/faults", nil, &got))
	if len(got.Faults) != 1 || got.Faults[0].Fired != 1 || got.Faults[0].ID != added.Fault.ID {
		t.Errorf("faults %+v", got)
	}
	w.must(w.own("DELETE", "/faults/"+added.Fault.ID, nil, nil))
	w.refused(w.own("DELETE", "/faults/"+added.Fault.ID, nil, nil), 404, notFound)

	v, n1 := w.volume("v", 1), w.droplet("n1")
	w.must(w.own("POST", "/faults", map[string]any{"kind": "kernel", "op": "loop-attach", "volume": "v", "action": "fail", "code": "EIO", "times": 1}, nil))
	if a := w.done(w.do.StorageActions.Attach(w.Context(), v.ID, n1)); a.Status != "errored" {
		t.Errorf("action %+v", a)
	}
	w.must(w.own("POST", "/faults", map[string]any{"op": "POST /v2/volumes", "action": "pause"}, &added))
	made := make(chan error, 1)
	go func() {
		_, _, err := w.do.Storage.CreateVolume(w.Context(), &godo.VolumeCreateRequest{Name: "held", Region: "nyc3", SizeGigaBytes: 1})
		made <- err
	}()
	for got.Faults = nil; len(got.Faults) < 2 || got.Faults[1].Fired == 0; {
		w.must(w.own("GET", "/faults", nil, &got))
	}
	w.must(w.own("POST", "/faults/"+added.Fault.ID+"/release", nil, nil))
	w.must(<-made)
	for what, body := range map[string]map[string]any{
		"no action": {}, "kill": {"action": "kill"}, "kind": {"action": "fail", "kind": "csi"}, "delay": {"action": "delay", "delay": "soon"}, "pattern": {"action": "fail", "op": "["},
	} {
		if err := w.own("POST", "/faults", body, nil); err == nil {
			t.Errorf("%s: the rule is taken", what)
		}
	}
	w.must(w.own("DELETE", "/faults", nil, nil))
	w.must(w.own("GET", "/faults", nil, &got))
	if len(got.Faults) != 0 {
		t.Errorf("cleared: %+v", got)
	}
}
