package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"drydock.dev/drydock/internal/guest"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// TestGuestDriver runs somebody else's driver on a node as "drydock node exec" does, and a volume of it through its whole life.
func TestGuestDriver(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) { guestDriverLives(t, mode) })
	}
}

func guestDriverLives(t *testing.T, mode host.Mode) {
	c := begin(t, Options{Devices: mode, Nodes: 2})
	ctx, u := limited(t, time.Minute), user{c.Client()}
	no := false
	made(t)(c.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: guestDriverName},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}, metav1.CreateOptions{}))
	nodes, err := c.client.StorageV1().CSINodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n1"})
	made(t)(nodes, err)
	defer nodes.Stop()

	g, leave := visit(ctx, t, c, "n1")
	running, kill := context.WithCancel(ctx)
	defer kill()
	ended := make(chan int, 1)
	go func() {
		code, err := guest.Run(running, guest.Spec{Node: "n1", Process: g.Process, Kubelet: g.Kubelet, Links: g.Links, Scratch: g.Scratch,
			Env: append(g.Env, guestDriver+"="+string(mode))}, []string{os.Args[0]})
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	awaitDriver(t, nodes, guestDriverName)

	made(t)(c.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
		Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: guestDriverName, VolumeHandle: "vol-7"}}}}, metav1.CreateOptions{}))
	claim := sized("app", "", "1Gi")
	claim.Spec.VolumeName = "theirs"
	made(t)(c.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{}))
	must(t, u.pod(ctx, "app", "app", "n1"))
	p, err := u.running(ctx, "app")
	made(t)(p, err)
	dir, err := published(c.Layout, p)
	made(t)(dir, err)
	if b, err := os.ReadFile(filepath.Join(dir, guestMark)); string(b) != "vol-7" {
		t.Errorf("in the pod's volume: %q, %v", b, err)
	}
	if mode == host.Loop {
		if is, err := c.mounter("n1").IsMountPoint(dir); !is {
			t.Errorf("what the guest mounted is not mounted for the node: %v", err)
		}
	}
	must(t, u.remove(ctx, "app"))
	calls := guestCalls(ctx, c)
	want := "NodeStageVolume OK, NodePublishVolume OK, NodeUnpublishVolume OK, NodeUnstageVolume OK"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("recorded calls: %s, want %s", got, want)
	}

	// The node's power ends the guest.
	go func() {
		leave(func(g Guest) { kill() })
	}()
	must(t, c.Operate(ctx, "n1", PowerOff, 0))
	select {
	case code := <-ended:
		if code != 137 {
			t.Errorf("the guest ended with %d", code)
		}
	case <-ctx.Done():
		t.Fatal("the guest outlives the power of its node")
	}
	if below, err := mountsBelow(c.Layout.Kubelet("n1")); len(below) > 0 || err != nil {
		t.Errorf("mounted without power: %v, %v", below, err)
	}
	must(t, c.Operate(ctx, "n1", PowerOn, 0))
}

// visit asks to run a program on a node. What it returns waits until the node wants it gone,
// does what it is told, and goes.
func visit(ctx context.Context, t testing.TB, c *Cluster, node string) (Guest, func(end func(Guest))) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL()+"/lab/v1/nodes/"+node+"/guests?what=test", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+c.Token())
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	lines := bufio.NewScanner(resp.Body)
	var g Guest
	if !lines.Scan() || resp.StatusCode != http.StatusOK {
		t.Fatalf("visit node %s: %s %s", node, resp.Status, lines.Text())
	}
	must(t, json.Unmarshal(lines.Bytes(), &g))
	t.Cleanup(func() { resp.Body.Close() })
	return g, func(end func(Guest)) {
		var last Guest
		if lines.Scan() {
			json.Unmarshal(lines.Bytes(), &last)
		}
		end(last)
		resp.Body.Close()
	}
}

// Guest lets a story have somebody else's driver on a node until its end.
func (w world) Guest(node string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	nodes, err := w.client.StorageV1().CSINodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		return err
	}
	defer nodes.Stop()
	g, leave := visit(ctx, w.t, w.Cluster, node)
	running, kill := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		guest.Run(running, guest.Spec{Node: node, Process: g.Process, Kubelet: g.Kubelet, Links: g.Links, Scratch: g.Scratch,
			Env: append(g.Env, guestDriver+"="+string(w.Mode))}, []string{os.Args[0]})
	}()
	go leave(func(Guest) { kill(); <-ended }) // the node wants it gone when the cluster ends
	awaitDriver(w.t, nodes, guestDriverName)
	return nil
}

func awaitDriver(t testing.TB, w watch.Interface, name string) {
	t.Helper()
	for e := range w.ResultChan() {
		if n, ok := e.Object.(*storagev1.CSINode); ok {
			for _, d := range n.Spec.Drivers {
				if d.Name == name {
					return
				}
			}
		}
	}
	t.Fatalf("driver %s is not registered", name)
}

// guestCalls are the calls about the guest's volume up to its unstaging.
func guestCalls(ctx context.Context, c *Cluster) (calls []string) {
	spans, sub := c.Lab.Timeline.Subscribe(4096)
	defer sub.Close()
	for {
		calls = nil
		for _, s := range spans {
			if (s.Volume == "vol-7" || s.Volume == "theirs") && strings.HasPrefix(s.Op, "Node") {
				calls = append(calls, s.Op+" "+s.Code)
				if s.Op == "NodeUnstageVolume" && !s.End.IsZero() {
					return calls
				}
			}
		}
		select {
		case <-sub.C:
			spans = c.Lab.Timeline.Spans()
		case <-ctx.Done():
			return calls
		}
	}
}

// TestPowerCycle takes the power from a node under a running pod: the pod's data is there after the boot, if it was synced.
func TestPowerCycle(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			c := begin(t, Options{Devices: mode, Nodes: 1})
			ctx, u := limited(t, time.Minute), user{c.Client()}
			must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
			must(t, u.claim(ctx, "a"))
			must(t, u.pod(ctx, "a", "a", ""))
			p, err := u.running(ctx, "a")
			made(t)(p, err)
			dir, err := published(c.Layout, p)
			made(t)(dir, err)
			must(t, writeSynced(filepath.Join(dir, "marker"), "kept"))
			links := func() int { l, _ := names(c.Layout.Links("n1")); return len(l) }
			if links() != 1 {
				t.Errorf("%d device links", links())
			}

			must(t, c.Operate(ctx, "n1", PowerOff, 0))
			must(t, c.Operate(ctx, "n1", PowerOff, 0)) // what is so stays so
			if n := links(); n != 0 {
				t.Errorf("%d device links without power", n)
			}
			if _, err := os.Stat(filepath.Join(dir, "marker")); err == nil {
				t.Error("the volume is still mounted")
			}
			if err := c.Operate(ctx, "n1", StartKubelet, 0); err == nil || !strings.Contains(err.Error(), "powered off") {
				t.Errorf("start a kubelet without power: %v", err)
			}
			must(t, c.Operate(ctx, "n1", PowerOn, 0))
			p, err = u.waitPod(ctx, "a", func(now *corev1.Pod) bool {
				return now != nil && now.Status.Phase == corev1.PodRunning && len(now.Status.ContainerStatuses) == 1 && now.Status.ContainerStatuses[0].RestartCount == 1 &&
					now.Status.ContainerStatuses[0].Ready
			})
			made(t)(p, err)
			if b, err := os.ReadFile(filepath.Join(dir, "marker")); string(b) != "kept" {
				t.Errorf("after the boot: %q, %v", b, err)
			}
			clean(t, c)
			must(t, u.remove(ctx, "a"))
			must(t, u.removeClaim(ctx, "a"))
		})
	}
}

func writeSynced(path, text string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

// TestPartition cuts a node off: it becomes unknown and starts nothing, and goes on when it is healed.
func TestPartition(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx, u := limited(t, time.Minute), user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
	must(t, c.Operate(ctx, "n1", Partition, 0))
	if s := c.machines["n1"].status(); s.Network != "partitioned" {
		t.Errorf("status %+v", s)
	}
	w, err := c.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n1"})
	made(t)(w, err)
	defer w.Stop()
	awaitReady := func(want corev1.ConditionStatus) {
		t.Helper()
		for e := range w.ResultChan() {
			for _, x := range e.Object.(*corev1.Node).Status.Conditions {
				if x.Type == corev1.NodeReady && x.Status == want {
					return
				}
			}
		}
		t.Fatalf("the node's Ready condition does not become %s", want)
	}
	c.Lab.Clock.(*lab.Clock).Advance(time.Minute)
	awaitReady(corev1.ConditionUnknown)
	must(t, u.claim(ctx, "a"))
	must(t, u.pod(ctx, "a", "a", ""))
	must(t, c.Operate(ctx, "n1", Heal, 0))
	awaitReady(corev1.ConditionTrue)
	made(t)(u.running(ctx, "a"))
}

// TestOperations names each by its answer on the wire.
func TestOperations(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	post := func(path, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+"/lab/v1/nodes/"+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		var s MachineStatus
		json.NewDecoder(resp.Body).Decode(&s)
		return resp.StatusCode, fmt.Sprintf("%s %s %s%s", s.Power, s.Kubelet, s.Network, s.Delay)
	}
	for _, x := range []struct {
		path string
		code int
		want string
	}{
		{"n1/stop-kubelet", 200, "on stopped connected"},
		{"n1/start-kubelet", 200, "on running connected"},
		{"n1/kill-kubelet", 200, "on stopped connected"},
		{"n1/restart-kubelet", 200, "on running connected"},
		{"n1/slow?delay=50ms", 200, "on running slow50ms"},
		{"n1/slow?delay=-1s", 400, ""},
		{"n1/partition", 200, "on running partitioned50ms"},
		{"n1/heal", 200, "on running connected"},
		{"n1/power-off", 200, "off stopped connected"},
		{"n1/start-kubelet", 409, ""},
		{"n1/guests", 409, ""},
		{"n1/reboot", 200, "on running connected"},
		{"n1/explode", 404, ""},
		{"n9/heal", 404, ""},
	} {
		code, got := post(x.path, c.Token())
		if code != x.code || code == 200 && got != x.want {
			t.Errorf("%s: %d %q, want %d %q", x.path, code, got, x.code, x.want)
		}
	}
	if code, _ := post("n1/power-off", "nobody"); code != http.StatusUnauthorized {
		t.Errorf("without the token: %d", code)
	}
}
