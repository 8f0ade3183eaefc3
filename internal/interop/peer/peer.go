package peer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Options say what kind of peer is wanted; the zero value is one that forgets what it had when the machine does.
type Options struct {
	Kinds bool   // the built-in kinds with upstream's stores, rules and admission; else custom resources only
	Fsync bool   // etcd waits for the disk
	CBOR  bool   // serve it, as upstream does when asked to
	Etcd  string // an etcd program, for instance Debian's; the linked-in one if empty
}

// Peer is a running API server with its etcd.
type Peer struct {
	URL         string
	Token       string
	CA          string // PEM
	Kubeconfig  string // a file
	PID         int
	EtcdPID     int
	EtcdVersion string
	EtcdURL     string
}

// Config is for clients, without limits of their own.
func (p *Peer) Config() *rest.Config {
	return &rest.Config{Host: p.URL, BearerToken: p.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(p.CA)}, QPS: -1, DisableCompression: true}
}

// Start returns once the server is ready; the end of the test ends it.
func Start(t testing.TB, o Options) *Peer {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ddpeer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(program(t, o), "-dir", dir, fmt.Sprintf("-fsync=%v", o.Fsync), fmt.Sprintf("-cbor=%v", o.CBOR), "-etcd", o.Etcd)
	log := &lockedBuffer{}
	cmd.Stderr = log
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the peer ended: %v", err)
		}
		if _, bench := t.(*testing.B); t.Failed() && !bench { // a missed target is none of the peer's
			t.Logf("the peer's log:\n%s", log.tail(60))
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the peer did not start:\n%s", log.tail(60))
	}
	p := &Peer{}
	if err := json.Unmarshal(line, p); err != nil {
		t.Fatalf("the peer says %q: %v", line, err)
	}
	return p
}

// program builds a server once for a test binary. It stays in the user's cache, where the next run finds it up to date in a second.
func program(t testing.TB, o Options) string {
	t.Helper()
	name := "serve"
	if o.Kinds {
		name = "kinds"
	}
	builds.Lock()
	defer builds.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "drydock", "peer-"+name)
	if !builds.done[name] {
		cmd := exec.Command("go", "build", "-tags", "osusergo netgo sqlite_omit_load_extension grpcnotrace", "-o", path, "drydock.dev/drydock/internal/interop/peer/"+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the peer: %v\n%s", err, out)
		}
		builds.done[name] = true
	}
	return path
}

var builds = struct {
	sync.Mutex
	done map[string]bool
}{done: map[string]bool{}}

// lockedBuffer is written by the process's copier and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.b.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
