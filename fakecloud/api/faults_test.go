package api_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	clocktesting "k8s.io/utils/clock/testing"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

func (w *world) fault(r lab.Rule) *lab.Handle {
	w.Helper()
	r.Kind = lab.KindCloud
	h, err := w.lab.Faults.Add(r)
	w.must(err)
	return h
}

func TestFaultCodes(t *testing.T) {
	for _, c := range []struct {
		code, message string
		status        int
		text          string
	}{
		{"500", "", 500, "Unexpected server-side error"},
		{"503", "out to lunch", 503, "out to lunch"},
		{"429", "", 429, "API Rate limit exceeded."},
		{"401", "", 401, "Unable to authenticate you"},
		{"404", "", 404, notFound},
		{"422-pending", "", 422, "Droplet already has a pending event."},
		{"403-capacity", "", 403, "failed to create volume: volume/snapshot capacity limit exceeded"},
		{"", "", 500, "Unexpected server-side error"},
	} {
		t.Run(c.code, func(t *testing.T) {
			each(t, func(w *world) {
				h := w.fault(lab.Rule{Op: "POST /v2/volumes", Volume: "v", Component: "godo", Action: lab.Fail, Code: c.code, Message: c.message, Times: 1})
				w.volume("other", 1)
				w.refused(w.create(godo.VolumeCreateRequest{Name: "v", Region: "nyc3", SizeGigaBytes: 1}), c.status, c.text)
				if h.Fired() != 1 {
					w.Errorf("fired %d times", h.Fired())
				}
				w.volume("v", 1)
			})
		})
	}
}

func TestErroredAction(t *testing.T) {
	each(t, func(w *world) {
		v, n1 := w.volume("v", 1), w.droplet("n1")
		w.fault(lab.Rule{Op: "POST /v2/volumes/{id}/actions", Volume: "v", Action: lab.Fail, Code: "errored", Times: 2})
		if a := w.done(w.do.StorageActions.Attach(w.Context(), v.ID, n1)); a.Status != "errored" || a.CompletedAt == nil {
			w.Errorf("the action: %+v", a)
		}
		if a := w.done(w.do.StorageActions.Resize(w.Context(), v.ID, 2, "nyc3")); a.Status != "errored" {
			w.Errorf("the action: %+v", a)
		}
		got, _, err := w.do.Storage.GetVolume(w.Context(), v.ID)
		w.must(err)
		if len(got.DropletIDs) != 0 || got.SizeGigaBytes != 1 {
			w.Errorf("errored actions had effects: %+v", got)
		}
		w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
	})
}

// TestKernelFaults: what fails below the API is an errored action or a 5xx with the
// cause in words, and leaves nothing behind.
func TestKernelFaults(t *testing.T) {
	each(t, func(w *world) {
		ctx, n1 := w.Context(), w.droplet("n1")
		once := func(op, code string) {
			_, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: op, Action: lab.Fail, Code: code, Message: op + " fails", Times: 1})
			w.must(err)
		}
		once("truncate", "ENOSPC")
		w.refused(w.create(godo.VolumeCreateRequest{Name: "v", Region: "nyc3", SizeGigaBytes: 1}), 507,
			"create volume v: truncate fails: no space left on device: free some space on the disk that holds the state directory and try again")
		once("truncate", "EIO")
		w.refused(w.create(godo.VolumeCreateRequest{Name: "v", Region: "nyc3", SizeGigaBytes: 1}), 500, "create volume v: truncate fails: input/output error")
		w.noLeftovers()
		v := w.volume("v", 1)
		for _, op := range []string{"loop-attach", "link"} {
			once(op, "EIO")
			if a := w.done(w.do.StorageActions.Attach(ctx, v.ID, n1)); a.Status != "errored" {
				w.Errorf("%s: %+v", op, a)
			}
			w.noLeftovers()
		}
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		for _, op := range []string{"unlink", "loop-detach"} {
			once(op, "EIO")
			if a := w.done(w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1)); a.Status != "errored" {
				w.Errorf("%s: %+v", op, a)
			}
			w.noLeftovers()
		}
		for _, op := range []string{"truncate", "loop-resize"} {
			once(op, "ENOSPC")
			if a := w.done(w.do.StorageActions.Resize(ctx, v.ID, 2, "")); a.Status != "errored" {
				w.Errorf("%s: %+v", op, a)
			}
			w.noLeftovers()
		}
		once("copy", "ENOSPC")
		if _, _, err := w.do.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "s"}); err == nil {
			w.Error("the snapshot was made")
		}
		w.completed(w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1))
		once("delete", "EIO")
		_, err := w.do.Storage.DeleteVolume(ctx, v.ID)
		w.refused(err, 500, "delete volume v: delete fails: input/output error")
		w.noLeftovers()
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.must(err)
	})
}

// TestLostAnswers: the work is done, the caller does not hear of it.
func TestLostAnswers(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		w.fault(lab.Rule{Op: "POST /v2/volumes", Volume: "lost", Action: lab.Lost, Times: 1})
		w.fault(lab.Rule{Op: "POST /v2/volumes", Volume: "late", Action: lab.LateOK, Times: 1})
		err := w.create(godo.VolumeCreateRequest{Name: "lost", Region: "nyc3", SizeGigaBytes: 1})
		if e := (*godo.ErrorResponse)(nil); err == nil || errors.As(err, &e) {
			t.Errorf("a lost answer: %v", err)
		}
		err = w.create(godo.VolumeCreateRequest{Name: "late", Region: "nyc3", SizeGigaBytes: 1})
		w.refused(err, 504, "The request took too long; it may have been carried out all the same.")
		for _, name := range []string{"lost", "late"} {
			if _, err := w.cloud.VolumeByName(name, "nyc3"); err != nil {
				t.Errorf("volume %s: %v", name, err)
			}
		}
	})
}

func TestHangAndPause(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		h := w.fault(lab.Rule{Op: "POST /v2/volumes", Volume: "hung", Action: lab.Hang, Times: 1})
		ctx, cancel := context.WithCancel(w.Context())
		go func() {
			_ = h.WaitFired(ctx, 1)
			cancel()
		}()
		_, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "hung", Region: "nyc3", SizeGigaBytes: 1})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a hanging call: %v", err)
		}
		if _, err := w.cloud.VolumeByName("hung", "nyc3"); err == nil {
			t.Error("a hanging call made the volume")
		}
		p := w.fault(lab.Rule{Op: "POST /v2/volumes", Volume: "paused", Action: lab.Pause, Times: 1})
		go func() {
			_ = p.WaitFired(w.Context(), 1)
			p.Release()
		}()
		w.volume("paused", 1)
	})
}

// TestKilledCloud: a cloud killed in the middle of a call drops the connection.
func TestKilledCloud(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		_, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: "cloud: after the volume's image is made, before its record", Action: lab.Kill})
		w.must(err)
		err = w.create(godo.VolumeCreateRequest{Name: "v", Region: "nyc3", SizeGigaBytes: 1})
		if e := (*godo.ErrorResponse)(nil); err == nil || errors.As(err, &e) {
			t.Errorf("a call that killed the cloud: %v", err)
		}
		w.must(w.cloud.Close())
		w.lab.Faults.Clear()
		w.reopen(fakecloud.Config{})
		if _, total := w.cloud.Volumes(fakecloud.VolumeFilter{}, fakecloud.Page{}); total != 0 {
			t.Errorf("%d volumes", total)
		}
	})
}

func TestRequestLogAndSpans(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	r, err := http.NewRequestWithContext(w.Context(), "GET", w.server.URL+"/v2/volumes?page=2", nil)
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("User-Agent", "drydock-kubelet/n1 godo/1.2.3")
	resp, err := w.do.HTTPClient.Do(r)
	w.must(err)
	resp.Body.Close()
	e := <-w.log
	if e.Method != "GET" || e.Path != "/v2/volumes?page=2" || e.Route != "/v2/volumes" || e.Status != 200 || e.Caller != "kubelet/n1" || e.ID != resp.Header.Get("x-request-id") || e.Duration <= 0 {
		t.Errorf("logged %+v", e)
	}
	w.fault(lab.Rule{Op: "GET /v2/account", Action: lab.Fail, Code: "500"})
	_, _, _ = w.do.Account.Get(w.Context())
	if e = <-w.log; e.Status != 500 || e.Fault == "" || e.Caller != "godo" {
		t.Errorf("logged %+v", e)
	}
	v, n1 := w.volume("pvc-7", 1), w.droplet("n1")
	w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
	seen := map[string]lab.Span{}
	for _, s := range w.lab.Timeline.Spans() {
		seen[s.Op] = s
	}
	for _, op := range []string{"POST /v2/volumes", "POST /v2/volumes/{id}/actions", "attach_volume"} {
		if s := seen[op]; s.Volume != "pvc-7" || s.Component != "cloud" || s.End.IsZero() {
			t.Errorf("span %s: %+v", op, s)
		}
	}
	if s := seen["attach_volume"]; s.Node != "n1" {
		t.Errorf("the attach is on node %q", s.Node)
	}
}

// TestPreferWait: an action can be waited for instead of polled.
func TestPreferWait(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	v, n1 := w.volume("v", 1), w.droplet("n1")
	hold, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "loop-attach", Action: lab.Pause})
	w.must(err)
	w.do, err = godo.New(w.do.HTTPClient, godo.SetBaseURL(w.server.URL+"/"), godo.SetRequestHeaders(map[string]string{"Authorization": "Bearer " + token, "Prefer": "wait=30"}))
	w.must(err)
	a, _, err := w.do.StorageActions.Attach(w.Context(), v.ID, n1)
	w.must(err)
	if a.Status != "in-progress" {
		t.Errorf("the POST waited: %+v", a)
	}
	w.must(hold.WaitFired(w.Context(), 1))
	go hold.Release()
	a, _, err = w.do.StorageActions.Get(w.Context(), v.ID, a.ID)
	w.must(err)
	if a.Status != "completed" {
		t.Errorf("the GET came back with %+v", a)
	}
}

// TestLatency: with a latency the action ends when the lab's clock says so, not before.
func TestLatency(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorldAt(t, "sim", fakecloud.Config{Latency: fakecloud.Latency{Attach: fakecloud.Delay{Min: time.Minute, Max: 2 * time.Minute}}}, lab.New(lab.Options{Clock: clock}))
	v, n1 := w.volume("v", 1), w.droplet("n1")
	a, resp, err := w.do.StorageActions.Attach(w.Context(), v.ID, n1)
	w.must(err)
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(59 * time.Second)
	got, _, err := w.do.Actions.Get(w.Context(), a.ID)
	w.must(err)
	if got.Status != "in-progress" {
		t.Errorf("after 59 s: %+v", got)
	}
	clock.Step(61 * time.Second)
	w.completed(a, resp, err)
}
