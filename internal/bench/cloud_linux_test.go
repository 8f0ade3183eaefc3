package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"golang.org/x/sys/unix"
)

// cloud is the binary's cloud alone, running.
type cloud struct {
	url   string
	state string
	do    *godo.Client
	node  int
}

const cloudToken = "bench"

// startCloud runs "drydock cloud" with one droplet.
func startCloud(b *testing.B) *cloud {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("the floor is made of real devices, which need root")
	}
	bin := os.Getenv("DRYDOCK_BIN")
	if bin == "" {
		bin = "../../bin/drydock"
	}
	if _, err := os.Stat(bin); err != nil {
		b.Fatalf("%v: run \"make bench\", which builds it", err)
	}
	dir, err := os.MkdirTemp("", "dd")
	if err != nil {
		b.Fatal(err)
	}
	c := &cloud{state: filepath.Join(dir, "s")}
	seed := filepath.Join(dir, "seed.yaml")
	if err := os.WriteFile(seed, []byte("droplets: [{name: n1}]\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(bin, "cloud", "--state", c.state, "--listen", "127.0.0.1:0", "--token", cloudToken, "--seed", seed, "--devices", "loop")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		os.RemoveAll(dir)
	})
	lines := bufio.NewScanner(out)
	for c.url == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "DIGITALOCEAN_API_URL="); ok {
			c.url = url
		}
	}
	go io.Copy(io.Discard, out)
	c.do, err = godo.New(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, godo.SetBaseURL(c.url+"/"),
		godo.SetRequestHeaders(map[string]string{"Authorization": "Bearer " + cloudToken, "Prefer": "wait=30"}))
	if err != nil {
		b.Fatal(err)
	}
	droplets, _, err := c.do.Droplets.List(b.Context(), nil)
	if err != nil || len(droplets) != 1 {
		b.Fatalf("droplets %v, %v", droplets, err)
	}
	c.node = droplets[0].ID
	return c
}

func (c *cloud) volume(ctx context.Context, name string) (*godo.Volume, error) {
	v, _, err := c.do.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: name, Region: "nyc3", SizeGigaBytes: 1})
	return v, err
}

// done waits for an action, by the header that the client sends.
func (c *cloud) done(ctx context.Context, v *godo.Volume, a *godo.Action, err error) error {
	if err != nil {
		return err
	}
	a, _, err = c.do.StorageActions.Get(ctx, v.ID, a.ID)
	if err == nil && a.Status != godo.ActionCompleted {
		err = fmt.Errorf("action %d is %s", a.ID, a.Status)
	}
	return err
}

func (c *cloud) attach(ctx context.Context, v *godo.Volume) error {
	a, _, err := c.do.StorageActions.Attach(ctx, v.ID, c.node)
	return c.done(ctx, v, a, err)
}

func (c *cloud) detach(ctx context.Context, v *godo.Volume) error {
	a, _, err := c.do.StorageActions.DetachByDropletID(ctx, v.ID, c.node)
	return c.done(ctx, v, a, err)
}

// BenchmarkCloudAttach: attach and detach over the API, waiting for each, against the
// two system calls that bind and release a loop device.
func BenchmarkCloudAttach(b *testing.B) {
	const rounds = 200
	c := startCloud(b)
	v, err := c.volume(b.Context(), "attach")
	if err != nil {
		b.Fatal(err)
	}
	img := filepath.Join(b.TempDir(), "img")
	file, err := os.Create(img)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(gib); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var ours, floor []time.Duration
		for range rounds { // in turn, so that both see the same machine
			begin := time.Now()
			if err := c.attach(b.Context(), v); err != nil {
				b.Fatal(err)
			}
			if err := c.detach(b.Context(), v); err != nil {
				b.Fatal(err)
			}
			ours = append(ours, time.Since(begin))
			begin = time.Now()
			fd, _, err := configure(file)
			if err != nil {
				b.Fatal(err)
			}
			if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil {
				b.Fatal(err)
			}
			unix.Close(fd)
			floor = append(floor, time.Since(begin))
		}
		perSecond := func(all []time.Duration) float64 {
			var sum time.Duration
			for _, d := range all {
				sum += d
			}
			return float64(len(all)) / sum.Seconds()
		}
		b.ReportMetric(perSecond(ours), "cycles/s")
		verdict(b, "cloud attach and detach", fmt.Sprintf("%.0f cycles/s, bare loop device %.0f cycles/s", perSecond(ours), perSecond(floor)), true)
		compare(b, "cloud attach and detach", ours, floor, 0)
	}
}

// BenchmarkCloudSnapshot: a snapshot of 100 MiB of data on a volume of 1 GiB, against
// cp of the same image.
func BenchmarkCloudSnapshot(b *testing.B) {
	const rounds, size = 5, 100 << 20
	c := startCloud(b)
	v, err := c.volume(b.Context(), "snapshot")
	if err != nil {
		b.Fatal(err)
	}
	image := filepath.Join(c.state, "cloud/volumes", v.ID+".img")
	if err := fill(image, size); err != nil {
		b.Fatal(err)
	}
	dir := filepath.Dir(c.state) // cp writes to the same filesystem
	for b.Loop() {
		var ours, floor []time.Duration
		for i := range rounds {
			begin := time.Now()
			s, _, err := c.do.Storage.CreateSnapshot(b.Context(), &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: fmt.Sprint("s", i)})
			if err != nil {
				b.Fatal(err)
			}
			ours = append(ours, time.Since(begin))
			if _, err := c.do.Snapshots.Delete(b.Context(), s.ID); err != nil {
				b.Fatal(err)
			}
			to := filepath.Join(dir, "copy")
			begin = time.Now()
			if out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", image, to).CombinedOutput(); err != nil {
				b.Fatalf("cp: %v: %s", err, out)
			}
			floor = append(floor, time.Since(begin))
			if err := os.Remove(to); err != nil {
				b.Fatal(err)
			}
		}
		compare(b, "cloud snapshot of 100 MiB", ours, floor, 0)
	}
}

func fill(path string, size int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for off := 0; off < size; off += len(block) {
		_, _ = rand.Read(block)
		if _, err := f.WriteAt(block, int64(off)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// BenchmarkCloudGet: GET of one volume, from one client and from several, against a
// bare net/http server that answers the same bytes.
func BenchmarkCloudGet(b *testing.B) {
	const span = 2 * time.Second
	c := startCloud(b)
	v, err := c.volume(b.Context(), "get")
	if err != nil {
		b.Fatal(err)
	}
	url := c.url + "/v2/volumes/" + v.ID
	body, err := get(http.DefaultClient, url)
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	bare := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Write(body)
	})}
	go bare.Serve(ln)
	defer bare.Close()
	for b.Loop() {
		for _, width := range []int{1, 8} {
			ours, err := rate(url, width, span)
			if err != nil {
				b.Fatal(err)
			}
			floor, err := rate("http://"+ln.Addr().String()+"/", width, span)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ours, fmt.Sprintf("get/s-%d-clients", width))
			verdict(b, fmt.Sprintf("cloud GET volume, %d at once", width), fmt.Sprintf("%.0f requests/s, bare net/http %.0f, share %.2f", ours, floor, ours/floor), true)
		}
	}
}

// rate asks as often as it can for a while, and gives the answers a second.
func rate(url string, width int, span time.Duration) (float64, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: width}}
	defer client.CloseIdleConnections()
	var n atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now()
	for range width {
		wg.Go(func() {
			for time.Since(begin) < span {
				if _, err := get(client, url); err != nil {
					failed.Store(&err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n.Load()) / time.Since(begin).Seconds(), nil
}

func get(client *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+cloudToken)
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", url, resp.Status, b.Bytes())
	}
	return b.Bytes(), nil
}
