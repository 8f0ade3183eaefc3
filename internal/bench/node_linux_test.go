package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

// The targets of one node with many volumes. Its driver is somebody else's and does nothing, so
// that what is measured is the node, with the API that it speaks to.
const (
	manyVolumes  = 1000
	manyIdle     = 30 * time.Second // as long as the idle cluster is watched; giving memory back after the burst is in it
	manyProbes   = 100
	manyPace     = 100 * time.Millisecond // between two of them
	maxFirstCall = 5 * time.Millisecond   // p99, from asking for a pod to the driver's first call about its volume
	idlePerCent  = 1.0                    // of a core, for the whole process
	manyDriver   = "bench.example.com"
)

// BenchmarkThousandVolumes fills a node with pods of one volume each, then lets it idle, then asks for more pods one after the other.
func BenchmarkThousandVolumes(b *testing.B) {
	for b.Loop() {
		thousandVolumes(b)
	}
}

func thousandVolumes(b *testing.B) {
	cluster.RouteLogs(zerolog.Nop())
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("/tmp", "dd")
	fatal(b, err)
	defer os.RemoveAll(dir)
	c, err := cluster.Start(ctx, cluster.Options{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Nodes: 1, Devices: host.Sim})
	fatal(b, err)
	defer c.Close()
	fatal(b, c.WaitReady(ctx))
	no := false
	_, err = c.Client().StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: manyDriver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}, metav1.CreateOptions{})
	fatal(b, err)
	d := &idleDriver{root: c.Layout.Kubelet("n1"), registered: make(chan struct{}), changed: make(chan struct{}), seen: map[string]time.Time{}}
	defer d.start(b)()
	select {
	case <-d.registered:
	case <-ctx.Done():
		b.Fatal("the driver is not registered")
	}

	names := make([]string, manyVolumes+manyProbes)
	for i := range names {
		names[i] = fmt.Sprintf("v%d", i)
		fatal(b, boundVolume(ctx, c, names[i]))
	}
	before, begin := memory(), time.Now()
	for _, n := range names[:manyVolumes] {
		fatal(b, onePod(ctx, c, n))
	}
	d.wait(ctx, b, names[:manyVolumes]...)
	took, each := time.Since(begin), float64(memory()-before)/manyVolumes/1024

	fatal(b, allRunning(ctx, c, manyVolumes)) // what follows a mount is no idling
	cpu := processorTime()
	t := time.NewTimer(manyIdle)
	<-t.C
	idle := 100 * float64(processorTime()-cpu) / float64(manyIdle)

	var first []time.Duration
	pace := time.NewTicker(manyPace) // a burst would measure the writes that follow the pod before
	defer pace.Stop()
	for _, n := range names[manyVolumes:] {
		<-pace.C
		begin := time.Now()
		fatal(b, onePod(ctx, c, n))
		d.wait(ctx, b, n)
		d.mu.Lock()
		first = append(first, d.seen[n].Sub(begin))
		d.mu.Unlock()
	}
	slices.Sort(first)
	p50, p99 := first[len(first)/2], first[len(first)*99/100]
	b.ReportMetric(manyVolumes/took.Seconds(), "pods/s")
	b.ReportMetric(each, "KiB/volume")
	b.ReportMetric(idle, "%idle")
	b.ReportMetric(float64(p50)/float64(time.Millisecond), "ms-p50/call")
	b.ReportMetric(float64(p99)/float64(time.Millisecond), "ms-p99/call")
	b.Logf("%.0f pods/s with a volume each; %.1f KiB of memory for a pod, its claim and its mounted volume", manyVolumes/took.Seconds(), each)
	verdict(b, fmt.Sprintf("idle with %d mounted volumes", manyVolumes), fmt.Sprintf("%.2f %% of a core (target %.0f)", idle, idlePerCent), idle <= idlePerCent)
	verdict(b, "from a pod to the driver's first call", fmt.Sprintf("p50 %s, p99 %s (target %s)", p50.Round(time.Microsecond), p99.Round(time.Microsecond), maxFirstCall), p99 <= maxFirstCall)
}

// boundVolume makes a claim and a volume that are made for each other.
func boundVolume(ctx context.Context, c *cluster.Cluster, name string) error {
	size, none := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, ""
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := c.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: manyDriver, VolumeHandle: name}}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claims := c.Client().CoreV1().PersistentVolumeClaims("default")
	_, err = claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &none, VolumeName: name, AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	w, err := claims.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*corev1.PersistentVolumeClaim); ok && p.Status.Phase == corev1.ClaimBound {
			return nil
		}
	}
	return fmt.Errorf("claim %s is not bound: %w", name, context.Cause(ctx))
}

// allRunning waits until so many pods say that they run.
func allRunning(ctx context.Context, c *cluster.Cluster, want int) error {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		pods, err := c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running >= want {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods run: %w", running, want, context.Cause(ctx))
		}
	}
}

// onePod asks for a pod on the node, without a scheduler between.
func onePod(ctx context.Context, c *cluster.Cluster, name string) error {
	_, err := c.Client().CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: "n1",
			Containers: []corev1.Container{{Name: "c", Image: "pause", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}}}, metav1.CreateOptions{})
	return err
}

// idleDriver takes every volume at once and notes when it heard of it first.
type idleDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	root       string
	once       sync.Once
	registered chan struct{}

	mu        sync.Mutex
	seen      map[string]time.Time // guarded by mu: the first call about a volume
	published map[string]bool      // guarded by mu
	changed   chan struct{}        // guarded by mu
}

func (d *idleDriver) socket() string { return filepath.Join(d.root, "plugins", manyDriver, "csi.sock") }

// start serves the driver's sockets; what it returns stops them.
func (d *idleDriver) start(b *testing.B) func() {
	d.published = map[string]bool{}
	fatal(b, os.MkdirAll(filepath.Dir(d.socket()), 0o755))
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, d)
	csi.RegisterNodeServer(s, d)
	registration.RegisterRegistrationServer(s, d)
	var wg sync.WaitGroup
	for _, path := range []string{d.socket(), filepath.Join(d.root, "plugins_registry", manyDriver+"-reg.sock")} {
		l, err := net.Listen("unix", path)
		fatal(b, err)
		wg.Go(func() { s.Serve(l) })
	}
	return func() { s.Stop(); wg.Wait() }
}

func (d *idleDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: manyDriver, Endpoint: d.socket(), SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *idleDriver) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.once.Do(func() { close(d.registered) })
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *idleDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "n1"}, nil
}

func (d *idleDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (d *idleDriver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.seen[r.VolumeId]; !known {
		d.seen[r.VolumeId] = time.Now()
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *idleDriver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published[r.VolumeId] = true
	close(d.changed)
	d.changed = make(chan struct{})
	return &csi.NodePublishVolumeResponse{}, nil
}

// wait blocks until these volumes were published.
func (d *idleDriver) wait(ctx context.Context, b *testing.B, names ...string) {
	b.Helper()
	for _, n := range names {
		for {
			d.mu.Lock()
			done, changed := d.published[n], d.changed
			d.mu.Unlock()
			if done {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				b.Fatalf("volume %s is not published in time", n)
			}
		}
	}
}

func fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// memory is what this process's program has in use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
