package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestPrepareRefusesWhatIsNotOurs(t *testing.T) {
	for _, c := range []struct {
		name, file, content, want string
	}{
		{"newer", "version", "99\n", "written by a newer drydock (layout 99"},
		{"damaged", "version", "x\n", "which is no version"},
		{"somebody else's", "thesis.tex", "", "files that are not drydock's (thesis.tex)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Layout{dir}.Prepare()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("the directory was changed: %v", entries)
			}
		})
	}
}

func TestSecondOwnerIsTold(t *testing.T) {
	l := Layout{t.TempDir()}
	first, err := takeLock(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(l); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "process") {
		t.Errorf("got %v", err)
	}
	if pid, err := Owner(l); err != nil || pid != os.Getpid() {
		t.Errorf("owner %d, %v", pid, err)
	}
	first.release()
	if pid, err := Owner(l); err != nil || pid != 0 {
		t.Errorf("after release: owner %d, %v", pid, err)
	}
}

func TestPurge(t *testing.T) {
	dir := t.TempDir()
	if err := Purge(Layout{dir}); err == nil || !strings.Contains(err.Error(), "not a drydock state directory") {
		t.Errorf("got %v", err)
	}
	l := Layout{filepath.Join(dir, "state")}
	if err := l.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := Purge(l); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Root); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestPurgeOfOthers: a file called "version" does not make a directory ours.
func TestPurgeOfOthers(t *testing.T) {
	l := Layout{t.TempDir()}
	work := filepath.Join(l.Root, "thesis", "chapter1.tex")
	must(t, os.Mkdir(filepath.Dir(work), 0o700))
	must(t, os.WriteFile(work, nil, 0o600))
	must(t, os.WriteFile(l.Version(), []byte("1\n"), 0o600))
	if err := Purge(l); err == nil || !strings.Contains(err.Error(), "thesis, which is not drydock's; move it away first, nothing was removed") {
		t.Errorf("got %v", err)
	}
	for _, f := range []string{work, l.Version()} {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	must(t, os.RemoveAll(filepath.Dir(work)))
	for _, f := range []string{"cluster.db-wal", "cluster.db.part", "cloud.db.part-journal", ".token-12345", "lock"} {
		must(t, os.WriteFile(filepath.Join(l.Root, f), nil, 0o600))
	}
	must(t, Purge(l))
}

// TestPrepareAfterACut: wherever the first start was killed, the next one goes on.
func TestPrepareAfterACut(t *testing.T) {
	l := Layout{t.TempDir()}
	for _, f := range []string{"lock", "log", ".version-12345"} {
		must(t, os.WriteFile(filepath.Join(l.Root, f), nil, 0o600))
	}
	must(t, l.Prepare())
	must(t, os.RemoveAll(l.PKI()))
	must(t, l.Prepare())
}

func TestIdentityOutlivesRestarts(t *testing.T) {
	l := Layout{t.TempDir()}
	if err := l.Prepare(); err != nil {
		t.Fatal(err)
	}
	a, err := loadIdentity(l)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadIdentity(l)
	if err != nil || a.token != b.token || string(a.ca) != string(b.ca) {
		t.Errorf("a second start made another identity: %v", err)
	}
	if err := a.writeKubeconfig(l.Kubeconfig(), "x", "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	// Nothing is compressed between programs of one machine, as far as the clients honour it.
	if cfg, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig()); err != nil || !cfg.DisableCompression {
		t.Errorf("compression is not switched off: %v", err)
	}
	for _, f := range []string{l.Token(), l.Kubeconfig(), filepath.Join(l.PKI(), "server.key")} {
		if fi, err := os.Stat(f); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, fi.Mode(), err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Name: "a/b"}, "lower-case letters"},
		{Options{Listen: "7474"}, "write it as 127.0.0.1:7474"},
		{Options{Listen: "0.0.0.0:7474"}, "not loopback"},
		{Options{Listen: ":7474"}, "not loopback"},
		{Options{Nodes: -1}, "from 1 to"},
		{Options{Nodes: 1000}, "from 1 to"},
		{Options{Driver: "a b"}, "driver name"},
		{Options{Ephemeral: true, State: "/x"}, "exclude each other"},
	} {
		if err := c.o.complete(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c.o, err)
		}
	}
}
