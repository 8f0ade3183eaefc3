package api_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

// TestErrorBodies: godo does not look at the id of an error; others do.
func TestErrorBodies(t *testing.T) {
	both(t, fakecloud.Config{Limits: fakecloud.Limits{CapacityGiB: 10}}, func(t *testing.T, w *world) {
		v, n1 := w.volume("v", 1), w.droplet("n1")
		w.completed(w.do.StorageActions.Attach(w.Context(), v.ID, n1))
		w.fault(lab.Rule{Op: "GET /v2/sizes", Action: lab.Fail, Code: "500"})
		w.fault(lab.Rule{Op: "GET /v2/regions", Action: lab.Fail, Code: "429"})
		for _, c := range []struct {
			method, path, body string
			status             int
			id                 string
		}{
			{"GET", "/v2/volumes/nope", "", 404, "not_found"},
			{"GET", "/v2/nonsense", "", 404, "not_found"},
			{"PUT", "/v2/volumes/" + v.ID, "{}", 404, "not_found"},
			{"GET", "/v2/snapshots/12345", "", 404, "not_found"},
			{"GET", "/v2/snapshots/1", "", 400, "bad_request"}, // the droplet's image
			{"POST", "/v2/volumes", `{"name":"v","region":"nyc3","size_gigabytes":1}`, 409, "conflict"},
			{"DELETE", "/v2/volumes/" + v.ID, "", 409, "conflict"},
			{"POST", "/v2/volumes", `{"name":"V","region":"nyc3","size_gigabytes":1}`, 422, "unprocessable_entity"},
			{"POST", "/v2/volumes", `{"name":"w","region":"nyc3","size_gigabytes":11}`, 403, "forbidden"},
			{"POST", "/v2/volumes", `{`, 400, "bad_request"},
			{"GET", "/v2/sizes", "", 500, "server_error"},
			{"GET", "/v2/regions", "", 429, "too_many_requests"},
		} {
			status, body := w.raw(c.method, c.path, c.body)
			if status != c.status || body["id"] != c.id || body["message"] == "" || body["request_id"] == "" {
				t.Errorf("%s %s: %d %v", c.method, c.path, status, body)
			}
		}
		r, err := http.NewRequestWithContext(w.Context(), "GET", w.server.URL+"/v2/account", nil)
		w.must(err)
		resp, err := w.do.HTTPClient.Do(r)
		w.must(err)
		resp.Body.Close()
		if resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") || resp.Header.Get("x-request-id") == "" {
			t.Errorf("without a token: %d %v", resp.StatusCode, resp.Header)
		}
	})
}

// TestPowerOffPullsDisks: whoever holds a device of a droplet that is switched off
// gets errors, and nothing hangs; switched on, the data is there.
func TestPowerOffPullsDisks(t *testing.T) {
	each(t, func(w *world) {
		ctx, v, n1 := w.Context(), w.volume("v", 1), w.droplet("n1")
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		link := w.dir + "/nodes/n1/dev/disk/by-id/scsi-0DO_Volume_v"
		writeAt(w, link, []byte("before"), 0)
		held := w.hold(link)
		w.completed(w.do.DropletActions.PowerOff(ctx, n1))
		if w.devices.Kind() == "loop" {
			if err := held(); err == nil {
				w.Error("a pulled disk can be written")
			}
		}
		w.completed(w.do.DropletActions.PowerOn(ctx, n1))
		if got := readAt(w, link, 6, 0); got != "before" {
			w.Errorf("after the power cycle it holds %q", got)
		}
		w.completed(w.do.DropletActions.PowerCycle(ctx, n1))
		w.completed(w.do.DropletActions.Reboot(ctx, n1))
		w.completed(w.do.DropletActions.Shutdown(ctx, n1))
		_, _, err := w.do.DropletActions.Shutdown(ctx, n1)
		w.refused(err, 422, "Droplet is already powered off.")
		w.completed(w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1))
		w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1)) // its device comes with the power
		w.noLeftovers()
		w.completed(w.do.DropletActions.PowerOn(ctx, n1))
		if got := readAt(w, link, 6, 0); got != "before" {
			w.Errorf("attached while off it holds %q", got)
		}
	})
}

// hold opens a device and gives a function that tries to write it and closes it.
func (w *world) hold(path string) func() error {
	w.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	w.must(err)
	return func() error {
		defer f.Close()
		if _, err := f.WriteAt(make([]byte, 4096), 8<<20); err != nil {
			return err
		}
		return f.Sync()
	}
}
