package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// known are goroutines that libraries keep and give no way to stop: klog's for the life of a
// process, and three of an event broadcaster for each provisioner and each resizer that ran.
var known = []goleak.Option{
	goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"),
	goleak.IgnoreTopFunction("k8s.io/client-go/tools/record.(*eventBroadcasterImpl).StartEventWatcher.func1"),
}

// broadcasters counts the goroutines of event broadcasters.
func broadcasters() int {
	buf := make([]byte, 16<<20)
	text := string(buf[:runtime.Stack(buf, true)])
	return strings.Count(text, "created by k8s.io/apimachinery/pkg/watch.NewLongQueueBroadcaster in") +
		strings.Count(text, "created by k8s.io/client-go/tools/record.(*eventBroadcasterImpl).StartEventWatcher in")
}

// TestVolumeMovesWithItsData walks one volume up, to another node, and away again.
func TestVolumeMovesWithItsData(t *testing.T) {
	for _, mode := range modes(t) {
		for _, binding := range []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer} {
			t.Run(string(mode)+"/"+string(binding), func(t *testing.T) {
				c := begin(t, Options{Devices: mode})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				u := user{c.Client()}
				must(t, u.class(ctx, binding))
				must(t, u.claim(ctx, "data"))
				must(t, u.pod(ctx, "first", "data", "n1"))
				pod, err := u.running(ctx, "first")
				must(t, err)
				dir, err := published(c.Layout, pod)
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, "marker"), []byte("kept"), 0o644))
				clean(t, c)
				must(t, u.remove(ctx, "first"))
				must(t, u.pod(ctx, "second", "data", "n2"))
				pod, err = u.running(ctx, "second")
				must(t, err)
				if pod.Spec.NodeName != "n2" {
					t.Errorf("the second pod is on %s", pod.Spec.NodeName)
				}
				dir, err = published(c.Layout, pod)
				must(t, err)
				if b, err := os.ReadFile(filepath.Join(dir, "marker")); err != nil || string(b) != "kept" {
					t.Errorf("marker: %q, %v", b, err)
				}
				clean(t, c)
				must(t, u.remove(ctx, "second"))
				must(t, u.removeClaim(ctx, "data"))
				clean(t, c)
				inv, err := c.inventory(ctx)
				must(t, err)
				if len(inv.Cloud)+len(inv.Attachments)+len(inv.Volumes)+len(inv.Stored)+len(inv.Devices) > 0 {
					t.Errorf("something is left: %+v", inv)
				}
			})
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsLeftBehind starts and stops whole clusters, also two at once, and looks for goroutines, devices and mounts.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			before, had := goleak.IgnoreCurrent(), broadcasters()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, b := begin(t, Options{Name: "a", Devices: mode}), begin(t, Options{Name: "b", Devices: mode})
			for _, c := range []*Cluster{a, b} {
				u := user{c.Client()}
				must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
				must(t, u.claim(ctx, "data"))
				must(t, u.pod(ctx, "p", "data", ""))
			}
			for _, c := range []*Cluster{a, b} {
				_, err := user{c.Client()}.running(ctx, "p")
				must(t, err)
				clean(t, c)
			}
			for _, c := range []*Cluster{a, b} {
				start := time.Now()
				must(t, c.Close())
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("cluster %s took %s to stop", c.Name(), took)
				}
				left, err := Leftovers(c.Layout)
				must(t, err)
				for _, p := range left {
					t.Errorf("left behind: %s", p)
				}
			}
			goleak.VerifyNone(t, append(known, before)...)
			if n := broadcasters() - had; n > 2*2*3 {
				t.Errorf("%d goroutines of event broadcasters are left; two provisioners and two resizers leave twelve", n)
			}
		})
	}
}

func TestRestartGoesOn(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dir := filepath.Join(shortDir(t), "s")
			c := begin(t, Options{State: dir, Devices: mode})
			u := user{c.Client()}
			must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
			must(t, u.claim(ctx, "data"))
			must(t, u.pod(ctx, "p", "data", ""))
			pod, err := u.running(ctx, "p")
			must(t, err)
			path, err := published(c.Layout, pod)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(path, "marker"), []byte("kept"), 0o644))
			must(t, c.Close())
			c = begin(t, Options{State: dir, Devices: mode})
			u = user{c.Client()}
			again, err := u.running(ctx, "p")
			must(t, err)
			if again.UID != pod.UID {
				t.Errorf("the pod is another one")
			}
			clean(t, c)
			if b, err := os.ReadFile(filepath.Join(path, "marker")); err != nil || string(b) != "kept" {
				t.Errorf("marker: %q, %v", b, err)
			}
		})
	}
}

// TestBadClaims asks for what cannot be had; the answer is in the claim's events, and nothing half-made is left.
func TestBadClaims(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingImmediate))
	for _, x := range []struct{ name, size, class, reason, words string }{
		{"huge", "20Ti", testClass, "ProvisioningFailed", "at most 16384 GiB"},
		{"unknown", "1Gi", "gold", "ProvisioningFailed", `"gold" not found`},
	} {
		w, err := u.client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + x.name})
		must(t, err)
		class := x.class
		_, err = u.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, sized(x.name, class, x.size), metav1.CreateOptions{})
		must(t, err)
		found := false
		for e := range w.ResultChan() {
			if ev, ok := e.Object.(*corev1.Event); ok && ev.Reason == x.reason && strings.Contains(ev.Message, x.words) {
				found = true
				break
			}
		}
		w.Stop()
		if !found {
			t.Errorf("claim %s: no event %s with %q", x.name, x.reason, x.words)
		}
	}
	inv, err := c.inventory(ctx)
	must(t, err)
	if len(inv.Cloud)+len(inv.Stored)+len(inv.Volumes) > 0 {
		t.Errorf("something half-made is left: %+v %v %+v", inv.Cloud, inv.Stored, inv.Volumes)
	}
}

// TestLostAnswerMakesNoSecondVolume makes the cloud's answer to CreateVolume get lost: one volume results, not two.
func TestLostAnswerMakesNoSecondVolume(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := c.Lab.Faults.Add(lab.Rule{Kind: lab.KindCloud, Op: "POST /v2/volumes", Action: lab.Lost, Times: 1})
	must(t, err)
	u := user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
	must(t, u.claim(ctx, "data"))
	must(t, u.pod(ctx, "p", "data", ""))
	_, err = u.running(ctx, "p")
	must(t, err)
	if h.Fired() != 1 {
		t.Errorf("the fault fired %d times", h.Fired())
	}
	inv, err := c.inventory(ctx)
	must(t, err)
	if len(inv.Cloud) != 1 {
		t.Errorf("%d volumes", len(inv.Cloud))
	}
	clean(t, c)
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	dir := filepath.Join(shortDir(t), "s")
	_, err = Start(t.Context(), Options{State: dir, Listen: l.Addr().String(), Devices: host.Sim, Log: zerolog.Nop()})
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "--listen") {
		t.Fatalf("got %v", err)
	}
	if pid, err := Owner(Layout{dir}); err != nil || pid != 0 {
		t.Errorf("the directory is still locked: %d %v", pid, err)
	}
	if _, err := os.Stat(Layout{dir}.ClusterDB()); !os.IsNotExist(err) {
		t.Errorf("a database was made: %v", err)
	}
}

// TestSecondOfOneName is refused, and leaves the first alone with all that it has mounted.
func TestSecondOfOneName(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			c := begin(t, Options{Devices: mode})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			u := user{c.Client()}
			must(t, u.class(ctx, storagev1.VolumeBindingImmediate))
			must(t, u.claim(ctx, "data"))
			must(t, u.pod(ctx, "app", "data", "n1"))
			pod, err := u.running(ctx, "app")
			must(t, err)
			dir, err := published(c.Layout, pod)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, "marker"), []byte("kept"), 0o644))

			_, err = Start(ctx, Options{State: c.Layout.Root, Listen: "127.0.0.1:0", Devices: mode, Log: zerolog.Nop()})
			if err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
				t.Fatalf("the second of one name is told %v", err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "marker")); err != nil || string(b) != "kept" {
				t.Errorf("marker of the first: %q, %v", b, err)
			}
			clean(t, c)
		})
	}
}

// TestNodeCalledSilentSpeaksAgain says of a healthy node that nobody hears from it: its kubelet contradicts at once.
func TestNodeCalledSilentSpeaksAgain(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	nodes := c.Client().CoreV1().Nodes()
	n, err := nodes.Get(ctx, "n1", metav1.GetOptions{})
	must(t, err)
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			n.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
	}
	n, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	must(t, err)
	w, err := nodes.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n1", ResourceVersion: n.ResourceVersion})
	must(t, err)
	defer w.Stop()
	for e := range w.ResultChan() {
		if now, ok := e.Object.(*corev1.Node); ok && c.isReady(*now) {
			return
		}
	}
	t.Error("the node stays Unknown")
}

// TestStopsWhateverHangs stops clusters in the middle of calls that never end by themselves.
func TestStopsWhateverHangs(t *testing.T) {
	for _, r := range []lab.Rule{
		{Kind: lab.KindCSI, Op: "CreateVolume", Action: lab.Hang},
		{Kind: lab.KindCSI, Op: "NodeStageVolume", Action: lab.Lost},
		{Kind: lab.KindKernel, Op: "mkfs", Action: lab.Hang},
		{Kind: lab.KindKernel, Op: "loop-attach", Action: lab.Hang},
		{Kind: lab.KindCloud, Op: "POST /v2/volumes", Action: lab.Pause},
		{Kind: lab.KindAPI, Op: "create volumeattachments", Action: lab.Hang},
	} {
		t.Run(string(r.Kind)+" "+strings.ReplaceAll(r.Op, "/", "_"), func(t *testing.T) {
			all := modes(t)
			c := begin(t, Options{Devices: all[len(all)-1], Nodes: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			h, err := c.Lab.Faults.Add(r)
			must(t, err)
			u := user{c.Client()}
			must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
			must(t, u.claim(ctx, "data"))
			must(t, u.pod(ctx, "p", "data", ""))
			if r.Op == "loop-attach" && all[len(all)-1] == host.Sim {
				t.Skip("simulated devices are not attached by the kernel")
			}
			must(t, h.WaitFired(ctx, 1))
			start := time.Now()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took > 4500*time.Millisecond {
				t.Errorf("the stop took %s", took)
			}
			left, err := Leftovers(c.Layout)
			must(t, err)
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestSuccessorOnTheSameNode lets one pod follow another on a node with the same claim, while the
// first one's volume is in the middle of coming down: at whichever instant it comes, it runs soon.
func TestSuccessorOnTheSameNode(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
	must(t, u.claim(ctx, "data"))
	must(t, u.pod(ctx, "pod-0", "data", ""))
	for i := range 60 {
		old, next := fmt.Sprint("pod-", i), fmt.Sprint("pod-", i+1)
		_, err := u.running(ctx, old)
		must(t, err)
		must(t, c.Client().CoreV1().Pods("default").Delete(ctx, old, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		pause := time.NewTimer(time.Duration(i%20) * 500 * time.Microsecond) // a sweep over the instants of the way down
		<-pause.C
		must(t, u.pod(ctx, next, "data", ""))
		_, err = u.running(ctx, next)
		must(t, err)
	}
	must(t, u.remove(ctx, "pod-60"))
	clean(t, c)
}

// TestDashboardLivesAgain: one that was killed shows the cluster again once it is started, to new pages and to open ones.
func TestDashboardLivesAgain(t *testing.T) {
	c := begin(t, Options{Name: "a", Devices: host.Sim, API: APIOptions{Only: true}})
	ask := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(limited(t, time.Minute), http.MethodGet, c.URL()+path, nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(b)
	}
	epoch := func() string {
		t.Helper()
		code, body := ask("/ui/v1/snapshot")
		for end := time.Now().Add(time.Minute); code == http.StatusServiceUnavailable && time.Now().Before(end); { // the new life begins beside us
			code, body = ask("/ui/v1/snapshot")
		}
		var snap struct {
			Epoch   string
			Objects []json.RawMessage
		}
		if err := json.Unmarshal([]byte(body), &snap); err != nil || code != http.StatusOK || len(snap.Objects) == 0 {
			t.Fatalf("%d %.200s: %v", code, body, err)
		}
		return snap.Epoch
	}
	first := epoch()
	for range 3 {
		must(t, c.parts.kill("web"))
		if code, _ := ask("/ui/v1/snapshot"); code != http.StatusServiceUnavailable {
			t.Errorf("a dashboard that does not run answers %d", code)
		}
		must(t, c.parts.start("web"))
		if now := epoch(); now == first {
			t.Error("it goes on with positions of the life before")
		}
		if _, said := ask("/ui/v1/events?epoch=" + first + "&rev=1"); !strings.Contains(said, "event: reset") {
			t.Errorf("a page of the life before is told %q", said)
		}
	}
}
