package storage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const childEnv = "DRYDOCK_STORAGE_TEST_CHILD"

// childMain is the process that the kill test kills: it writes for ever and prints what was acknowledged.
func childMain() bool {
	path := os.Getenv(childEnv)
	if path == "" {
		return false
	}
	s, err := Open(Config{Path: path})
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	var out sync.Mutex
	for i := range 8 {
		go func() {
			name := fmt.Sprint("w", i)
			var rev Revision
			if e, ok := s.Get(key("x", name)); ok {
				rev = e.Revision
			}
			for n := 0; ; n++ {
				es, err := s.Write(context.Background(), Op{Key: key("x", name), Object: configMap("x", name, fmt.Sprint(rev, "-", n)), Expect: rev})
				if err != nil {
					return
				}
				rev = es[0].Revision
				out.Lock()
				fmt.Printf("%s %d\n", name, rev)
				out.Unlock()
			}
		}()
	}
	select {}
}

// TestKill kills a writing process several times: all that it acknowledged is there, and no revision is used twice.
func TestKill(t *testing.T) {
	path := tempPath(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var highest Revision
	for round := range 5 {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acked := map[string]Revision{}
		lines := bufio.NewReader(pipe)
		first := true
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break
			}
			var name string
			var rev Revision
			if _, err := fmt.Sscanf(line, "%s %d\n", &name, &rev); err != nil || strings.HasPrefix(line, "error") {
				t.Fatalf("child: %s", line)
			}
			if first && rev <= highest {
				t.Fatalf("round %d begins at revision %d, the last one had used %d", round, rev, highest)
			}
			first = false
			acked[name] = rev
			highest = max(highest, rev)
			if n == 400+round*177 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		s, err := Open(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		for name, rev := range acked {
			e, ok := s.Get(key("x", name))
			if !ok || e.Revision < rev {
				t.Errorf("round %d: %s was acknowledged at %d, the store has %v", round, name, rev, e)
			}
			if cm := e.Object.(*corev1.ConfigMap); cm.Name != name {
				t.Errorf("%s holds %s", name, cm.Name)
			}
		}
		if s.Revision() < highest {
			t.Fatalf("revision %d, acknowledged %d", s.Revision(), highest)
		}
		if round%2 == 1 { // the others end without a clean close of the parent's own
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		s.abandon()
	}
}

// abandon ends a store as the death of its process would, but for the operating system's share.
func (s *Store) abandon() {
	s.closeOnce.Do(func() {
		s.closeMu.Lock()
		s.closed = true
		close(s.queue)
		s.closeMu.Unlock()
		s.check.stop()
		s.wg.Wait()
		s.hub.close()
		s.writer.db.conn.Close()
	})
}
