package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/blockdev"
)

// walk reads all pages as godo's documentation tells its users to.
func (w *world) walk(perPage int, region string) (names []string, requests int) {
	w.Helper()
	o := &godo.ListOptions{PerPage: perPage}
	for {
		requests++
		page, resp, err := w.do.Storage.ListVolumes(w.Context(), &godo.ListVolumeParams{Region: region, ListOptions: o})
		w.must(err)
		for _, v := range page {
			names = append(names, v.Name)
		}
		if resp.Links.IsLastPage() {
			return names, requests
		}
		current, err := resp.Links.CurrentPage()
		w.must(err)
		o.Page = current + 1
	}
}

func TestPages(t *testing.T) {
	both(t, fakecloud.Config{}, func(t *testing.T, w *world) {
		var want []string
		for i := range 45 {
			name := fmt.Sprintf("v%02d", i)
			w.volume(name, 1)
			want = append(want, name)
		}
		for _, c := range []struct {
			perPage, requests int
			region            string
		}{{0, 3, ""}, {20, 3, "nyc3"}, {45, 1, ""}, {10, 5, "nyc3"}, {1000, 1, ""}, {1, 45, ""}} {
			if got, n := w.walk(c.perPage, c.region); !slices.Equal(got, want) || n != c.requests {
				t.Errorf("%d a page: %d requests gave %v", c.perPage, n, got)
			}
		}
		if got, _ := w.walk(20, "ams3"); len(got) != 0 {
			t.Errorf("another region has %v", got)
		}

		type links struct{ First, Prev, Next, Last string }
		for query, want := range map[string]links{
			"":                         {Next: "page=2&per_page=20", Last: "page=3&per_page=20"},
			"page=2&region=nyc3":       {First: "page=1&per_page=20&region=nyc3", Prev: "page=1&per_page=20&region=nyc3", Next: "page=3&per_page=20&region=nyc3", Last: "page=3&per_page=20&region=nyc3"},
			"page=3":                   {First: "page=1&per_page=20", Prev: "page=2&per_page=20"},
			"page=9":                   {First: "page=1&per_page=20", Prev: "page=8&per_page=20"},
			"per_page=200":             {},
			"per_page=999&page=1":      {},
			"page=0&per_page=40":       {Next: "page=2&per_page=40", Last: "page=2&per_page=40"},
			"page=x&per_page=-3":       {Next: "page=2&per_page=20", Last: "page=3&per_page=20"},
			"page=9223372036854775807": {First: "page=1&per_page=20", Prev: "page=9223372036854775806&per_page=20"},
		} {
			status, body := w.raw("GET", "/v2/volumes?"+query, "")
			var got links
			if p, ok := body["links"].(map[string]any)["pages"].(map[string]any); ok {
				text := func(k string) string {
					s, _ := p[k].(string)
					if s == "" {
						return ""
					}
					u, err := url.Parse(s)
					w.must(err)
					if "http://"+u.Host != w.server.URL || u.Path != "/v2/volumes" {
						t.Errorf("?%s: the link %s leads elsewhere", query, s)
					}
					return u.RawQuery
				}
				got = links{text("first"), text("prev"), text("next"), text("last")}
			}
			if status != 200 || got != want || body["meta"].(map[string]any)["total"] != 45.0 || body["volumes"] == nil {
				t.Errorf("?%s: %d %+v, want %+v; %v", query, status, got, want, body["meta"])
			}
		}
	})
}

func TestListFilters(t *testing.T) {
	both(t, fakecloud.Config{Names: fakecloud.NamesLenient}, func(t *testing.T, w *world) {
		ctx := w.Context()
		for _, c := range []struct{ name, region string }{{"a", "nyc3"}, {"a", "ams3"}, {"b", "nyc3"}, {"pvc-vol+1-AB", "nyc3"}, {"with space", "nyc3"}} {
			_, _, err := w.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: c.name, Region: c.region, SizeGigaBytes: 1})
			w.must(err)
		}
		for _, c := range []struct {
			name, region string
			want         int
		}{{"a", "", 2}, {"a", "ams3", 1}, {"a", "sfo3", 0}, {"", "nyc3", 4}, {"", "", 5}, {"pvc-vol+1-AB", "nyc3", 1}, {"with%20space", "nyc3", 1}, {"no", "", 0}} {
			// godo pastes the name into the URL as it is.
			got, resp, err := w.do.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Name: c.name, Region: c.region})
			w.must(err)
			if len(got) != c.want || resp.Meta == nil || resp.Meta.Total != c.want {
				t.Errorf("name %q, region %q: %d volumes, total %+v", c.name, c.region, len(got), resp.Meta)
			}
		}
	})
}

// weightless makes no images: for lists longer than a disk should bear.
type weightless struct{ blockdev.Backend }

func (weightless) Create(context.Context, blockdev.Volume, blockdev.Image) error { return nil }

func TestWalkTenThousand(t *testing.T) {
	w := sim(t, fakecloud.Config{})
	w.must(w.cloud.Close())
	w.devices = weightless{w.devices}
	w.reopen(fakecloud.Config{})
	w.weightless = true
	const n = 10000
	for i := range n {
		_, err := w.cloud.CreateVolume(w.Context(), fakecloud.NewVolume{Name: fmt.Sprintf("v%05d", i), Region: "nyc3", SizeGiB: 1})
		w.must(err)
	}
	got, requests := w.walk(200, "nyc3")
	if len(got) != n || requests != n/200 || got[0] != "v00000" || got[n-1] != "v09999" || !slices.IsSorted(got) {
		t.Errorf("%d requests gave %d volumes", requests, len(got))
	}
	// The last page costs what the first does.
	cost := func(page int) testing.BenchmarkResult {
		return testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRequest("GET", fmt.Sprintf("/v2/volumes?region=nyc3&per_page=200&page=%d", page), nil)
				r.Header.Set("Authorization", "Bearer "+token)
				rec := httptest.NewRecorder()
				w.handler.ServeHTTP(rec, r)
				if rec.Code != 200 {
					b.Fatal(rec.Code)
				}
			}
		})
	}
	first, last := cost(1), cost(n/200)
	t.Logf("a page of 200: the first %v, the last %v", first, last)
	if last.NsPerOp() > 3*first.NsPerOp() {
		t.Errorf("the last page costs %d ns, the first %d", last.NsPerOp(), first.NsPerOp())
	}
}

// BenchmarkGetVolume answers GET of one volume, without the network.
func BenchmarkGetVolume(b *testing.B) {
	w := benchWorld(b)
	v, err := w.cloud.CreateVolume(b.Context(), fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r := httptest.NewRequest("GET", "/v2/volumes/"+string(v.ID), nil)
		r.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		if w.handler.ServeHTTP(rec, r); rec.Code != 200 {
			b.Fatal(rec.Code)
		}
	}
}

// BenchmarkListPage answers a page of 200 out of 10,000 volumes; the last page costs what the first does.
func BenchmarkListPage(b *testing.B) {
	w := benchWorld(b)
	w.must(w.cloud.Close())
	w.devices = weightless{w.devices}
	w.weightless = true
	w.reopen(fakecloud.Config{})
	for i := range 10000 {
		_, err := w.cloud.CreateVolume(b.Context(), fakecloud.NewVolume{Name: fmt.Sprintf("v%05d", i), Region: "nyc3", SizeGiB: 1})
		w.must(err)
	}
	for _, page := range []int{1, 25, 50} {
		b.Run(fmt.Sprintf("page=%d", page), func(b *testing.B) {
			for b.Loop() {
				rec := httptest.NewRecorder()
				if w.handler.ServeHTTP(rec, request(fmt.Sprintf("/v2/volumes?region=nyc3&per_page=200&page=%d", page))); rec.Code != 200 {
					b.Fatal(rec.Code)
				}
			}
		})
	}
}
