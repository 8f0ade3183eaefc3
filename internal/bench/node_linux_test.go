package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

// The targets of one node with many volumes. Its driver is somebody else's and does nothing, so
// that what is measured is the node, with the API that it speaks to.
const (
	manyVolumes  = 1000
	manyIdle     = 90 * time.Second // as long as the idle cluster is watched: each pod's resync, every 60 to 90 s, is in it
	manyProbes   = 200
	manyPace     = 100 * time.Millisecond // between two of them
	maxFirstCall = 5 * time.Millisecond   // p99, from the pod's event at a watcher to the driver's first call because of it
	idlePerCent  = 1.0                    // of a core, for the whole process
)

// BenchmarkThousandVolumes fills a node with pods of one volume each, then lets it idle, then asks for more pods one after the other.
// What counts of those is the node's part: from the event that tells of a pod to the driver's first call.
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
	host.KeepHeadroom() // as the program does
	c, err := cluster.Start(ctx, cluster.Options{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Nodes: 1, Devices: host.Sim})
	fatal(b, err)
	defer c.Close()
	fatal(b, c.WaitReady(ctx))
	no := false
	_, err = c.Client().StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: manyDriver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}, metav1.CreateOptions{})
	fatal(b, err)
	d := newIdleDriver(c.Layout.Kubelet("n1"))
	defer d.start(b)()
	select {
	case <-d.registered:
	case <-ctx.Done():
		b.Fatal("the driver is not registered")
	}

	before := memory()
	names := boundVolumes(ctx, b, c, 0, manyVolumes)
	begin := time.Now()
	for _, n := range names {
		fatal(b, onePod(ctx, c, n))
	}
	d.wait(ctx, b, names...)
	took := time.Since(begin)
	fatal(b, allRunning(ctx, c, manyVolumes))
	fatal(b, allTold(ctx, c)) // what follows a mount is no idling
	fatal(b, c.Settle(ctx))   // and collecting the burst's garbage is the burst's
	each := float64(memory()-before) / manyVolumes / 1024

	cpu := processorTime()
	t := time.NewTimer(manyIdle)
	<-t.C
	idle := 100 * float64(processorTime()-cpu) / float64(manyIdle)

	seen, stop := watchPods(ctx, b, c)
	defer stop()
	pace := time.NewTicker(manyPace) // a burst would measure the writes that follow the pod before
	defer pace.Stop()
	var steps chain
	for _, n := range boundVolumes(ctx, b, c, manyVolumes, manyProbes) {
		<-pace.C
		asked := time.Now()
		fatal(b, onePod(ctx, c, n))
		answered := time.Now()
		added, running := seen.wait(ctx, b, n)
		steps.add(b, asked, answered, added, running, d.about(n, asked))
	}
	steps.log(b)
	p50, p99 := quantiles(steps.first)
	b.ReportMetric(manyVolumes/took.Seconds(), "pods/s")
	b.ReportMetric(each, "KiB/volume")
	b.ReportMetric(idle, "%idle")
	b.ReportMetric(float64(p50)/float64(time.Millisecond), "ms-p50/call")
	b.ReportMetric(float64(p99)/float64(time.Millisecond), "ms-p99/call")
	b.Logf("%.0f pods/s with a volume each; %.1f KiB of memory for a pod, its claim and its mounted volume", manyVolumes/took.Seconds(), each)
	verdict(b, fmt.Sprintf("idle with %d mounted volumes", manyVolumes), fmt.Sprintf("%.2f %% of a core (target %.0f)", idle, idlePerCent), idle <= idlePerCent)
	verdict(b, "pod's event to the first call", fmt.Sprintf("p50 %s, p99 %s (target %s)", p50.Round(time.Microsecond), p99.Round(time.Microsecond), maxFirstCall), p99 <= maxFirstCall)
}

// boundVolumes makes n of them, counted from first.
func boundVolumes(ctx context.Context, b *testing.B, c *cluster.Cluster, first, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("v%d", first+i))
		fatal(b, boundVolume(ctx, c, names[i]))
	}
	return names
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

// allTold waits until no event has been written for a second.
func allTold(ctx context.Context, c *cluster.Cluster) error {
	w, err := c.Client().CoreV1().Events("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	quiet := time.NewTimer(time.Second)
	defer quiet.Stop()
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return fmt.Errorf("the watch of events ended: %w", context.Cause(ctx))
			}
			quiet.Reset(time.Second)
		case <-quiet.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("there are ever more events: %w", context.Cause(ctx))
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
