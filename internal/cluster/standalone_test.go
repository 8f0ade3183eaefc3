package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/godo"

	"drydock.dev/drydock/internal/host"
)

func beginCloud(t *testing.T, o CloudOptions) *Cloud {
	t.Helper()
	o.Log = testLog(t)
	c, err := StartCloud(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// TestCloudAlone: what a cloud alone holds is there after its next start, and a seed is planted once.
func TestCloudAlone(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			dir := shortDir(t)
			seed := filepath.Join(dir, "seed.yaml")
			must(t, os.WriteFile(seed, []byte("droplets: [{name: web}]\nvolumes: [{name: data, size_gigabytes: 1, droplet: web}]\nsettings: {names: lenient}\n"), 0o600))
			o := CloudOptions{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Devices: mode, Seed: seed, Log: testLog(t)}
			var token string
			for range 2 {
				c, err := StartCloud(t.Context(), o)
				must(t, err)
				if token != "" && c.Token != token {
					t.Error("the token changed")
				}
				token = c.Token
				_, err = StartCloud(t.Context(), o)
				if !errors.Is(err, ErrRunning) {
					t.Errorf("a second one on the same directory: %v", err)
				}
				do := godo.NewFromToken(token)
				must(t, godo.SetBaseURL(c.URL()+"/")(do))
				list, _, err := do.Storage.ListVolumes(t.Context(), nil)
				must(t, err)
				if len(list) != 1 || len(list[0].DropletIDs) != 1 {
					t.Errorf("volumes %+v", list)
				}
				if _, err := os.Stat(filepath.Join(c.Layout.Links("web"), "scsi-0DO_Volume_data")); err != nil {
					t.Error(err)
				}
				must(t, c.Close())
			}
		})
	}
}

func TestCloudRefused(t *testing.T) {
	dir := shortDir(t)
	bad := filepath.Join(dir, "bad.yaml")
	must(t, os.WriteFile(bad, []byte("volumes: [{name: data, size_gigabytes: 0}]"), 0o600))
	for _, c := range []struct {
		says string
		o    CloudOptions
	}{
		{"is not loopback", CloudOptions{Listen: "0.0.0.0:0"}},
		{"neither loopback nor", CloudOptions{Listen: "127.0.0.1:0", Metadata: "10.0.0.1:80", Droplet: "x"}},
		{"needs --droplet", CloudOptions{Listen: "127.0.0.1:0", Metadata: "127.0.0.1:0"}},
		{"read seed", CloudOptions{Listen: "127.0.0.1:0", Seed: filepath.Join(dir, "none")}},
		{"seed volume data: failed to create volume: size_gigabytes must be", CloudOptions{Listen: "127.0.0.1:0", Seed: bad}},
		{"listen on 127.0.0.1:99999", CloudOptions{Listen: "127.0.0.1:99999"}},
	} {
		c.o.State, c.o.Devices, c.o.Log = filepath.Join(dir, "s"), host.Sim, testLog(t)
		got, err := StartCloud(t.Context(), c.o)
		if err == nil {
			got.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

const cloudInNamespace = "DRYDOCK_TEST_CLOUD_NAMESPACE"

// TestMetadataAddress serves a droplet's metadata where a droplet finds it, in a network namespace.
func TestMetadataAddress(t *testing.T) {
	if os.Getenv(cloudInNamespace) != "" {
		metadataAddress(t)
		return
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("network namespaces need Linux and root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("unshare", "-n", "sh", "-c", `ip link set lo up && ip addr add 169.254.169.254/32 dev lo && exec "$0" -test.run='^TestMetadataAddress$' -test.v`, "/proc/self/exe")
	self, err := os.Executable()
	must(t, err)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Env = append(os.Environ(), cloudInNamespace+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func metadataAddress(t *testing.T) {
	dir := shortDir(t)
	seed := filepath.Join(dir, "seed.yaml")
	must(t, os.WriteFile(seed, []byte("droplets: [{name: web, region: ams3}]"), 0o600))
	beginCloud(t, CloudOptions{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Devices: host.Sim, Seed: seed, Droplet: "web", Metadata: "169.254.169.254:80"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/metadata/v1/region": "ams3", "/metadata/v1/hostname": "web", "/v2/account": "404 page not found\n"} {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://169.254.169.254"+path, nil)
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		must(t, err)
		if string(b) != want {
			t.Errorf("%s: %d %q", path, resp.StatusCode, b)
		}
	}
}
