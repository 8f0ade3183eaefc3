package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// programs are built once, into one directory, when first asked for.
var programs struct {
	dir string
	mu  sync.Mutex
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("/tmp", "ddi")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build gives the path of a program made from pkg, a package of the module in dir.
func build(t *testing.T, name, dir, pkg string, args ...string) string {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	path := filepath.Join(programs.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", path}, args...), pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

func drydockBinary(t *testing.T) string {
	if p := os.Getenv("DRYDOCK_BIN"); p != "" {
		return p
	}
	return build(t, "drydock", "../..", "./cmd/drydock", "-tags", "osusergo netgo sqlite_omit_load_extension grpcnotrace")
}

// kubectlVersion is what the module requires of k8s.io/kubectl; the program learns its version from the linker.
const kubectlVersion = "v1.37.2"

func kubectlBinary(t *testing.T) string {
	return build(t, "kubectl", ".", "./kubectl", "-ldflags", "-X k8s.io/component-base/version.gitVersion="+kubectlVersion)
}

// world is a running cluster and the programs aimed at it.
type world struct {
	drydock, kubectl string
	state            string
	env              []string
	status           clusterStatus
}

// clusterStatus is the part of "drydock status -o json" that the tests read.
type clusterStatus struct {
	PID     int    `json:"pid"`
	State   string `json:"state"`
	URL     string `json:"url"`
	Devices string `json:"devices"`
	Driver  string `json:"driver"`
}

// start brings a cluster up and takes it away again, state and all, when the test ends.
// Settings are DRYDOCK_ variables.
func start(t *testing.T, settings ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ddi")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{drydock: drydockBinary(t), kubectl: kubectlBinary(t), state: filepath.Join(dir, "s")}
	w.env = append(os.Environ(), "DRYDOCK_STATE="+w.state, "DRYDOCK_LISTEN=127.0.0.1:0", "DRYDOCK_LOG_LEVEL=info", "HOME="+dir, "KUBECONFIG="+filepath.Join(w.state, "kubeconfig"))
	w.env = append(w.env, settings...)
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := os.ReadFile(filepath.Join(w.state, "log")); err == nil {
				t.Logf("the cluster's log:\n%s", tail(string(log), 100))
			}
		}
		if out, err := w.command(context.Background(), w.drydock, "down", "--purge").CombinedOutput(); err != nil {
			t.Errorf("drydock down: %v\n%s", err, out)
		}
		os.RemoveAll(dir)
	})
	w.run(t, w.drydock, "up", "--detach")
	if err := json.Unmarshal([]byte(w.run(t, w.drydock, "status", "-o", "json")), &w.status); err != nil {
		t.Fatal(err)
	}
	return w
}

func tail(s string, lines int) string {
	l := strings.Split(s, "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

func (w *world) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = w.env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a program to its end and returns what it printed; failure fails the test.
func (w *world) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := w.try(t, "", name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) try(t *testing.T, input, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := w.command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s: %s", filepath.Base(name), strings.Join(args, " "), time.Since(began).Round(time.Millisecond))
	return string(out), err
}

// k is kubectl, which must succeed.
func (w *world) k(t *testing.T, args ...string) string {
	t.Helper()
	return w.run(t, w.kubectl, args...)
}

// kin is kubectl with a manifest on its standard input.
func (w *world) kin(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := w.try(t, manifest, w.kubectl, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s\nof:\n%s", strings.Join(args, " "), err, out, manifest)
	}
	return out
}

// refused is kubectl that must fail, and say so in words.
func (w *world) refused(t *testing.T, words, manifest string, args ...string) {
	t.Helper()
	out, err := w.try(t, manifest, w.kubectl, args...)
	if err == nil {
		t.Fatalf("kubectl %s succeeded:\n%s", strings.Join(args, " "), out)
	}
	if !strings.Contains(out, words) {
		t.Fatalf("kubectl %s: the refusal lacks %q:\n%s", strings.Join(args, " "), words, out)
	}
}

// inside is a path as the cluster's process sees it, in its own mount namespace.
func (w *world) inside(path string) string {
	if w.status.Devices == "sim" {
		return path
	}
	return fmt.Sprintf("/proc/%d/root%s", w.status.PID, path)
}

// published is the directory of a pod's volume on its node.
func (w *world) published(t *testing.T, pod, claim string) string {
	t.Helper()
	uid := w.k(t, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	node := w.k(t, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	pv := w.k(t, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	return w.inside(filepath.Join(w.status.State, "nodes", node, "var/lib/kubelet/pods", uid, "volumes/kubernetes.io~csi", pv, "mount"))
}

// watcher collects the output of a program that runs beside the test.
type watcher struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// until waits for the words to have been printed.
func (w *watcher) until(t *testing.T, words string) {
	t.Helper()
	w.untilMatch(t, regexp.MustCompile(regexp.QuoteMeta(words)))
}

func (w *watcher) untilMatch(t *testing.T, words *regexp.Regexp) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !words.MatchString(w.String()) {
		select {
		case <-w.more:
		case <-limit.C:
			t.Fatalf("no %q in:\n%s", words, w)
		}
	}
}

// beside runs a program until the test ends.
func (w *world) beside(t *testing.T, name string, args ...string) *watcher {
	t.Helper()
	out := &watcher{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := w.command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, io.Writer(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(name), tail(out.String(), 60))
		}
	})
	return out
}
