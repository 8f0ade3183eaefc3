package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/cluster"
)

// The peer: a generic API server on etcd, measured once on a machine of this class. drydock claims five times
// its speed, and half its memory once there is something to keep; absolute figures of a shared machine only support that.
const (
	peerCreates1    = 190.0 // creates a second, one client, p50 5 ms
	peerCreates16   = 570.0
	peerList5000    = 550 * time.Millisecond
	peerWatchP99    = 23 * time.Millisecond
	peerMemoryStart = 101 // MB
	peerMemoryAfter = 385
	timesBetter     = 5.0
	timesLighter    = 2.0
)

// apiServer is the binary under measurement with --api-only.
type apiServer struct {
	state string
	cmd   *exec.Cmd
	ready time.Duration
	cfg   *rest.Config
}

func startAPI(b *testing.B, state string) *apiServer {
	b.Helper()
	bin := os.Getenv("DRYDOCK_BIN")
	if bin == "" {
		bin = "../../bin/drydock"
	}
	s := &apiServer{state: state, cmd: exec.Command(bin, "up", "--api-only", "--devices", "sim", "--state", state, "--listen", "127.0.0.1:0")}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		b.Fatalf("%v: run \"make bench\", which builds it", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "is ready in") {
	}
	s.ready = time.Since(begin)
	go func() {
		for lines.Scan() {
		}
	}()
	if s.cfg, err = clientcmd.BuildConfigFromFlags("", cluster.Layout{Root: state}.Kubeconfig()); err != nil {
		b.Fatalf("the server did not become ready: %v", err)
	}
	s.cfg.QPS = -1
	return s
}

func (s *apiServer) stop() {
	s.cmd.Process.Signal(os.Interrupt)
	s.cmd.Wait()
}

// client speaks JSON or protobuf over loopback.
func (s *apiServer) client(b *testing.B, contentType string) kubernetes.Interface {
	b.Helper()
	cfg := rest.CopyConfig(s.cfg)
	cfg.ContentType = contentType
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// item is an object of about a kilobyte, as pods and claims are.
func item(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}}, Data: map[string]string{"k": strings.Repeat("v", 700)}}
}

// creates makes n objects with so many clients, and returns the rate and the times.
func creates(b *testing.B, c kubernetes.Interface, prefix string, n, clients int) (float64, []time.Duration) {
	b.Helper()
	times := make([]time.Duration, n)
	begin := time.Now()
	err := each(n, clients, func(i int) error {
		t := time.Now()
		_, err := c.CoreV1().ConfigMaps("default").Create(b.Context(), item(fmt.Sprint(prefix, "-", i)), metav1.CreateOptions{})
		times[i] = time.Since(t)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return float64(n) / time.Since(begin).Seconds(), times
}

func quantile(times []time.Duration, q float64) time.Duration {
	s := slices.Clone(times)
	slices.Sort(s)
	return s[int(q*float64(len(s)-1))]
}

// BenchmarkAPI fills a server with 50,000 objects and measures on the way.
func BenchmarkAPI(b *testing.B) {
	for range b.N {
		dir, err := os.MkdirTemp("/tmp", "dd")
		if err != nil {
			b.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := startAPI(b, filepath.Join(dir, "s"))
		defer func() { s.stop() }()
		pid := s.cmd.Process.Pid
		start := rss(b, pid)
		verdict(b, "start", fmt.Sprintf("ready in %s with %d MB (peer: %d MB)", ms(s.ready), start, peerMemoryStart), float64(start) <= peerMemoryStart/timesLighter)
		pb, js := s.client(b, "application/vnd.kubernetes.protobuf"), s.client(b, "application/json")
		for _, m := range []struct {
			name string
			c    kubernetes.Interface
		}{{"json", js}, {"proto", pb}} {
			one, t1 := creates(b, m.c, m.name+"-one", 500, 1)
			verdict(b, m.name+", 1 client", fmt.Sprintf("%.0f creates/s, p50 %s, p99 %s (peer: %.0f/s)", one, ms(quantile(t1, .5)), ms(quantile(t1, .99)), peerCreates1), one >= timesBetter*peerCreates1)
			many, t16 := creates(b, m.c, m.name+"-many", 2000, 16)
			verdict(b, m.name+", 16 clients", fmt.Sprintf("%.0f creates/s, p50 %s, p99 %s (peer: %.0f/s)", many, ms(quantile(t16, .5)), ms(quantile(t16, .99)), peerCreates16), many >= timesBetter*peerCreates16)
		}
		conflicts(b, pb)
		list := func(name string, c kubernetes.Interface, n int) time.Duration {
			var times []time.Duration
			for range 5 {
				t := time.Now()
				l, err := c.CoreV1().ConfigMaps("default").List(b.Context(), metav1.ListOptions{})
				if err != nil || len(l.Items) < n {
					b.Fatalf("list: %d objects, %v", len(l.Items), err)
				}
				times = append(times, time.Since(t))
			}
			p50 := quantile(times, .5)
			b.Logf("%s: list of %d in %s", name, n, ms(p50))
			return p50
		}
		verdict(b, "list of 5,000", fmt.Sprintf("proto (peer: %s)", ms(peerList5000)), list("proto", pb, 5000) <= time.Duration(float64(peerList5000)/timesBetter))
		list("json", js, 5000)
		latency(b, pb, "1 watch", 1)
		p99 := latency(b, pb, "200 watches", 200)
		verdict(b, "watch p99 with 200", fmt.Sprintf("%s (peer, fewer watches: %s)", ms(p99), ms(peerWatchP99)), p99 <= time.Duration(float64(peerWatchP99)/timesBetter))
		creates(b, pb, "to8000", 3000, 16)
		after := rss(b, pid)
		verdict(b, "memory", fmt.Sprintf("%d MB with 8,000 objects (peer after such a run: %d MB)", after, peerMemoryAfter), float64(after) <= peerMemoryAfter/timesLighter)
		creates(b, pb, "to50000", 42000, 16)
		b.Logf("memory: %d MB with 50,000 objects", rss(b, pid))
		list("proto", pb, 50000)
		list("json", js, 50000)
		s.stop()
		s = startAPI(b, s.state)
		b.Logf("start with 50,000 objects: ready in %s with %d MB", ms(s.ready), rss(b, s.cmd.Process.Pid))
		b.ReportMetric(float64(s.ready.Milliseconds()), "ms-start-50000")
	}
}

// conflicts has 16 clients count in one object, each retrying on conflicts: none may be lost.
func conflicts(b *testing.B, c kubernetes.Interface) {
	b.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(b.Context(), item("counter"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	refused := 0
	begin := time.Now()
	err := each(400, 16, func(int) error {
		for {
			m, err := maps.Get(b.Context(), "counter", metav1.GetOptions{})
			if err != nil {
				return err
			}
			m.Data["n"] += "."
			if _, err = maps.Update(b.Context(), m, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				return err
			}
			mu.Lock()
			refused++
			mu.Unlock()
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	m, err := maps.Get(b.Context(), "counter", metav1.GetOptions{})
	if err != nil || len(m.Data["n"]) != 400 {
		b.Fatalf("%d updates of 400 arrived: %v", len(m.Data["n"]), err)
	}
	b.Logf("16 clients count to 400 in one object: %s, %d conflicts", ms(time.Since(begin)), refused)
}

// latency is how long after the beginning of a create its event is with the watchers.
func latency(b *testing.B, c kubernetes.Interface, name string, watches int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	maps := c.CoreV1().ConfigMaps("default")
	l, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	const rounds = 50
	arrived := make(chan time.Time, watches)
	for range watches {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for range w.ResultChan() {
				arrived <- time.Now()
			}
		}()
	}
	var times []time.Duration
	for i := range rounds {
		begin := time.Now()
		if _, err := maps.Create(ctx, item(fmt.Sprintf("w%d-%d", watches, i)), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		for range watches {
			times = append(times, (<-arrived).Sub(begin))
		}
	}
	b.Logf("%s: event after p50 %s, p99 %s of the create's beginning", name, ms(quantile(times, .5)), ms(quantile(times, .99)))
	return quantile(times, .99)
}
