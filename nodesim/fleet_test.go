package nodesim

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/sock"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// fleet is three nodes with one API and one attach controller. The nodes share the lab.
type fleet struct {
	*world // the API, and the first node
	nodes  []*world
	watch  *fleetOrders
	disks  *disks
}

// single tells whether only one node at a time may have a volume.
func single(handle string) bool { return handle != "vol-s" }

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{}
	f.watch = &fleetOrders{staged: map[string]map[string]bool{}, alive: map[string]map[string]bool{}, targets: map[string]map[string]bool{}, busy: map[string]string{}}
	base := newBareWorld(t)
	f.world = base
	f.disks = &disks{dir: filepath.Join(base.root, "disks"), acked: map[string]uint64{}, wrong: f.watch.wrong}
	if err := os.Mkdir(f.disks.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stop := f.runAttachController()
	for _, name := range []string{"n1", "n2", "n3"} {
		n := base
		if name != base.name {
			root, err := os.MkdirTemp("/tmp", "dd")
			base.must(root, err)
			n = &world{t: t, name: name, ctx: base.ctx, root: root, client: base.client, lab: base.lab, mounter: mount.NewFakeMounter(nil),
				watches: base.watches, log: base.log}
		}
		n.guest = newGuest(driverName, name, n.mounter)
		n.guest.fits(100)
		n.guest.contents = &contents{at: map[string]string{}, disks: f.disks}
		n.mounter.UnmountFunc = n.guest.contents.unmounted
		n.guest.order = func(method, volume, target string) { f.watch.begin(n, method, volume, target) }
		n.guest.ended = func(method, volume, target string, err error) { f.watch.end(n, method, volume, target, err) }
		n.guest.start(t, KubeletRoot(n.root))
		f.nodes = append(f.nodes, n)
		if n != base {
			base.others = append(base.others, n)
		}
	}
	closeBase := base.close
	base.close = sync.OnceFunc(func() {
		for _, n := range f.nodes {
			n.stopKubelet()
			n.guest.stop()
			defer os.RemoveAll(n.root)
		}
		stop()
		closeBase()
	})
	t.Cleanup(base.close)
	return f
}

// restart begins a node's next life, after every call of the last one has ended.
func (f *fleet) restart(n *world) {
	n.guest.settle(f.ctx)
	f.watch.newLife(n.name)
	n.startKubelet()
}

// down ends a node's kubelet at once, if it lives.
func (f *fleet) down(n *world) {
	if n.comp != nil {
		n.killKubelet()
	}
}

// runAttachController attaches what pods want and detaches what no pod wants and no
// node uses, for all nodes. A single-attach volume goes to one node at a time.
func (f *fleet) runAttachController() (stop func()) { return f.atEachChange(f.attachPass) }

func (f *fleet) attachPass(ctx context.Context) {
	want := f.wantedVolumes(ctx)
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	holders := map[string]int{}
	lists := map[string][]v1.AttachedVolume{}
	changed := map[string]bool{}
	const prefix = "kubernetes.io/csi/" + driverName + "^"
	tell := func(node string) {
		list := lists[node]
		if list == nil {
			list = []v1.AttachedVolume{}
		}
		b, _ := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": list}})
		f.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, b, metav1.PatchOptions{}, "status")
	}
	for _, n := range nodes.Items {
		var idle []v1.AttachedVolume
		for _, a := range n.Status.VolumesAttached {
			handle := strings.TrimPrefix(string(a.Name), prefix)
			if want[n.Name][handle] == "" && !slices.Contains(n.Status.VolumesInUse, a.Name) {
				idle = append(idle, a)
				continue
			}
			lists[n.Name] = append(lists[n.Name], a)
		}
		if len(idle) > 0 {
			// First the kubelet is told, and then it is looked whether it has begun to use the volume meanwhile.
			tell(n.Name)
			now, err := f.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return
			}
			for _, a := range idle {
				if handle := strings.TrimPrefix(string(a.Name), prefix); slices.Contains(now.Status.VolumesInUse, a.Name) {
					lists[n.Name] = append(lists[n.Name], a)
					changed[n.Name] = true
				} else {
					f.watch.detach(n.Name, handle)
					f.client.StorageV1().VolumeAttachments().Delete(ctx, csi.AttachmentName(handle, driverName, n.Name), metav1.DeleteOptions{})
				}
			}
		}
		for _, a := range lists[n.Name] {
			holders[strings.TrimPrefix(string(a.Name), prefix)]++
		}
	}
	for _, n := range nodes.Items {
		for handle, pv := range want[n.Name] {
			name := uniqueName(handle)
			if slices.ContainsFunc(lists[n.Name], func(a v1.AttachedVolume) bool { return a.Name == name }) || single(handle) && holders[handle] > 0 {
				continue
			}
			holders[handle]++
			changed[n.Name] = true
			f.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driverName, n.Name)},
				Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: n.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
				Status:     storagev1.VolumeAttachmentStatus{Attached: true},
			}, metav1.CreateOptions{})
			lists[n.Name] = append(lists[n.Name], v1.AttachedVolume{Name: name})
		}
		if changed[n.Name] {
			tell(n.Name)
		}
	}
}

// wantedVolumes is what pods whose containers may run want: by node, the PV of each handle.
func (f *fleet) wantedVolumes(ctx context.Context) map[string]map[string]string {
	want := map[string]map[string]string{}
	pods, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return want
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
			continue
		}
		for _, v := range p.Spec.Volumes {
			claim := ""
			switch {
			case v.PersistentVolumeClaim != nil:
				claim = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim = p.Name + "-" + v.Name
			default:
				continue
			}
			// Past the reactors: this controller's reads do not fail.
			o, err := f.client.Tracker().Get(v1.SchemeGroupVersion.WithResource("persistentvolumes"), "", "pv-"+claim)
			pv, ok := o.(*v1.PersistentVolume)
			if err != nil || !ok {
				continue
			}
			if want[p.Spec.NodeName] == nil {
				want[p.Spec.NodeName] = map[string]string{}
			}
			want[p.Spec.NodeName][pv.Spec.CSI.VolumeHandle] = pv.Name
		}
	}
	return want
}

// cleanNodes waits until no node has anything left. Stuck is called once for a node that takes long.
func (f *fleet) cleanNodes(stuck func(*world)) {
	f.t.Helper()
	for _, n := range f.nodes {
		long, once := time.Now().Add(30*time.Second), stuck
		for { // a pause after many failures is two minutes of a time that passes slowly on a busy machine
			o := n.nodeObject()
			if len(o.Status.VolumesInUse) == 0 && len(o.Status.VolumesAttached) == 0 && len(n.leftovers()) == 0 {
				break
			}
			if once != nil && time.Now().After(long) {
				once(n)
				once = nil
			}
			if f.ctx.Err() != nil {
				f.t.Fatalf("left behind on %s:\n%s\n%s", n.name, strings.Join(n.leftovers(), "\n"), n.describe())
			}
			n.pause()
		}
	}
}

// TestSettle: a call may lie in a connection that its caller has left before the driver's
// server has made it known. The next life must not begin before that call has had its turn.
func TestSettle(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	g := newGuest(driverName, nodeName, mount.NewFakeMounter(nil))
	g.start(t, KubeletRoot(root))
	defer g.stop()
	c, err := sock.Dial(t.Context(), filepath.Join(KubeletRoot(root), "plugins", driverName, "csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 9)); err != nil { // the server's greeting: a client may send now
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case <-g.conns.idle():
		t.Error("nobody counts as connected while a caller is")
	default:
	}
	g.settle(ctx) // gives up with ctx
	c.Close()
	g.settle(t.Context())
}
