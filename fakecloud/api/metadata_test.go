package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/fakecloud"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (w *world) fetch(c *http.Client, u string, header ...string) (int, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), "GET", u, nil)
	w.must(err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(r)
	w.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	w.must(err)
	return resp.StatusCode, string(body)
}

// TestMetadataByProxy asks as csi-digitalocean does on a machine with HTTP_PROXY.
func TestMetadataByProxy(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		n1, n2 := w.droplet("n1"), w.droplet("n2")
		for user, want := range map[string]int{"droplet-" + itoa(n1): n1, itoa(n2): n2, "n1": n1} {
			proxy, err := url.Parse(strings.Replace(w.server.URL, "http://", "http://"+user+"@", 1))
			w.must(err)
			tr := &http.Transport{Proxy: http.ProxyURL(proxy)}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr}
			if status, body := w.fetch(c, "http://169.254.169.254/metadata/v1/id"); status != 200 || body != itoa(want) {
				t.Errorf("%s: id is %d %q", user, status, body)
			}
			if status, body := w.fetch(c, "http://169.254.169.254/metadata/v1/region"); status != 200 || body != "nyc3" {
				t.Errorf("%s: region is %d %q", user, status, body)
			}
			if status, _ := w.fetch(c, "http://192.0.2.1/metadata/v1/id"); status != 403 {
				t.Errorf("a proxy request to elsewhere: %d", status)
			}
		}
	})
}

func TestMetadataTree(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		n1 := w.droplet("n1")
		c := w.do.HTTPClient
		get := func(path string) (int, string) { return w.fetch(c, w.server.URL+path, "X-Drydock-Droplet", "n1") }
		for path, want := range map[string]string{
			"/metadata/v1/":            "id\nhostname\nuser-data\nvendor-data\npublic-keys\nregion\ninterfaces/\ndns/\nfloating_ip/\nreserved_ip/\ntags/\nfeatures/",
			"/metadata/v1":             "id\nhostname\nuser-data\nvendor-data\npublic-keys\nregion\ninterfaces/\ndns/\nfloating_ip/\nreserved_ip/\ntags/\nfeatures/",
			"/metadata/v1/id":          itoa(n1),
			"/metadata/v1/hostname":    "n1",
			"/metadata/v1/interfaces":  "private/\npublic/",
			"/metadata/v1/interfaces/": "private/\npublic/",
			"/metadata/v1/dns/":        "nameservers",
		} {
			if status, got := get(path); status != 200 || got != want {
				t.Errorf("%s: %d %q", path, status, got)
			}
		}
		if status, _ := get("/metadata/v1/nothing"); status != 404 {
			t.Errorf("an unknown leaf: %d", status)
		}
		if status, _ := w.fetch(c, w.server.URL+"/metadata/v1/id"); status != 404 {
			t.Errorf("nobody's metadata: %d", status)
		}
		if status, _ := w.fetch(c, w.server.URL+"/metadata/v1/id", "X-Drydock-Droplet", "n9"); status != 404 {
			t.Errorf("an unknown droplet's metadata: %d", status)
		}
		d, _, err := w.do.Droplets.Create(w.Context(), &godo.DropletCreateRequest{Name: "web", Region: "nyc3", Size: "s-1vcpu-1gb",
			Image: godo.DropletCreateImage{Slug: "debian-13-x64"}, UserData: "#cloud-config\n"})
		w.must(err)
		w.settled()
		w.must(w.cloud.Close())
		w.reopen(fakecloud.Config{})
		if status, got := w.fetch(c, w.server.URL+"/metadata/v1/user-data", "X-Drydock-Droplet", itoa(d.ID)); status != 200 || got != "#cloud-config\n" {
			t.Errorf("user data: %d %q", status, got)
		}
		_, _, err = w.do.Droplets.Create(w.Context(), &godo.DropletCreateRequest{Name: "web-2", Region: "nyc3", Size: "s-1vcpu-1gb",
			Image: godo.DropletCreateImage{Slug: "debian-13-x64"}, UserData: strings.Repeat("x", 64<<10+1)})
		w.refused(err, 422, "user_data must not be longer than 64 KiB")
		_, body := get("/metadata/v1.json")
		var doc struct {
			ID       int    `json:"droplet_id"`
			Hostname string `json:"hostname"`
			Region   string `json:"region"`
		}
		w.must(json.Unmarshal([]byte(body), &doc))
		if doc.ID != n1 || doc.Hostname != "n1" || doc.Region != "nyc3" {
			t.Errorf("document %+v", doc)
		}
	})
}
