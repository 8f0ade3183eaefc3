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
	Fsync bool   // etcd waits for the disk
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
}

// Config is for clients, without limits of their own.
func (p *Peer) Config() *rest.Config {
	return &rest.Config{Host: p.URL, BearerToken: p.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(p.CA)}, QPS: -1}
}

// Start returns once the server is ready; the end of the test ends it.
func Start(t testing.TB, o Options) *Peer {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ddpeer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(program(t), "-dir", dir, fmt.Sprintf("-fsync=%v", o.Fsync), "-etcd", o.Etcd)
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
		if t.Failed() {
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

// program builds the server once for a test binary.
func program(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built leaves the program in the user's cache, where the next run finds it up to date in a second.
var built = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "drydock", "peer")
	cmd := exec.Command("go", "build", "-tags", "osusergo netgo sqlite_omit_load_extension", "-o", path, "drydock.dev/drydock/internal/interop/peer/serve")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the peer: %w\n%s", err, out)
	}
	return path, nil
})

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
