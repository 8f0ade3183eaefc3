package volumeplugin_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

func newHost() *volumeplugin.Host {
	return &volumeplugin.Host{Lab: lab.New(lab.Options{}), Log: zerolog.Nop(), Life: context.Background(), Simulated: true}
}

// tree makes a volume with a directory, a file, and a link that leads out of it.
func tree(t *testing.T) (root, outside string) {
	t.Helper()
	dir := t.TempDir()
	root, outside = filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "d"), 0o700), os.Chmod(root, 0o700), os.WriteFile(filepath.Join(root, "d/f"), nil, 0o600),
		os.WriteFile(outside, nil, 0o600), os.Symlink(outside, filepath.Join(root, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode()
}

func TestOwnershipModes(t *testing.T) {
	for name, c := range map[string]struct {
		readOnly bool
		file     fs.FileMode
		dir      fs.FileMode
	}{
		"read-write": {false, 0o660, 0o770},
		"read-only":  {true, 0o640, 0o750},
	} {
		t.Run(name, func(t *testing.T) {
			root, outside := tree(t)
			o := volumeplugin.Ownership{Root: root, Group: int64(os.Getgid()), ReadOnly: c.readOnly, Volume: "v"}
			if err := o.Apply(t.Context(), newHost()); err != nil {
				t.Fatal(err)
			}
			if m := modeOf(t, filepath.Join(root, "d/f")); m.Perm() != c.file {
				t.Errorf("file %s", m)
			}
			for _, d := range []string{root, filepath.Join(root, "d")} {
				if m := modeOf(t, d); m.Perm() != c.dir || m&fs.ModeSetgid == 0 {
					t.Errorf("directory %s", m)
				}
			}
			if m := modeOf(t, outside); m.Perm() != 0o600 {
				t.Errorf("a link was followed: %s", m)
			}
		})
	}
}

// The root's group, mode and setgid bit together say that the walk was done.
func TestOwnershipOnRootMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		root fs.FileMode
		want bool // the walk is made
	}{
		"matches":      {0o770 | fs.ModeSetgid, false},
		"no setgid":    {0o770, true},
		"mode is less": {0o700 | fs.ModeSetgid, true},
		"mode is more": {0o777 | fs.ModeSetgid, false},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := tree(t)
			if err := os.Chmod(root, c.root); err != nil {
				t.Fatal(err)
			}
			o := volumeplugin.Ownership{Root: root, Group: int64(os.Getgid()), Policy: new(v1.FSGroupChangeOnRootMismatch), Volume: "v"}
			if err := o.Apply(t.Context(), newHost()); err != nil {
				t.Fatal(err)
			}
			if walked := modeOf(t, filepath.Join(root, "d/f")).Perm() == 0o660; walked != c.want {
				t.Errorf("walked: %v", walked)
			}
			// A second time nothing is to be done.
			if err := os.Chmod(filepath.Join(root, "d/f"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := o.Apply(t.Context(), newHost()); err != nil {
				t.Fatal(err)
			}
			if modeOf(t, filepath.Join(root, "d/f")).Perm() != 0o600 {
				t.Error("walked again")
			}
		})
	}
}

// A walk that does not come to its root leaves it without the mark.
func TestOwnershipEndsWithTheRoot(t *testing.T) {
	root, _ := tree(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := volumeplugin.Ownership{Root: root, Group: int64(os.Getgid()), Volume: "v"}
	if err := o.Apply(ctx, newHost()); err == nil {
		t.Fatal("a walk that was cut short reports success")
	}
	if modeOf(t, root)&fs.ModeSetgid != 0 {
		t.Error("the root is marked")
	}
}

// A slow walk is told after 30 s, and then each minute.
func TestSlowOwnershipWarns(t *testing.T) {
	root, _ := tree(t)
	h := newHost()
	clock := h.Lab.Clock.(*lab.Clock)
	slow, err := h.Lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "chown", Action: lab.Pause})
	if err != nil {
		t.Fatal(err)
	}
	warned := make(chan string, 10)
	done := make(chan error)
	go func() {
		done <- volumeplugin.Ownership{Root: root, Group: int64(os.Getgid()), Volume: "v",
			Warn: func(reason, message string) { warned <- reason + ": " + message }}.Apply(t.Context(), h)
	}()
	if err := slow.WaitFired(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{31 * time.Second, 61 * time.Second, 61 * time.Second} {
		// The timer may be made a moment after the walk begins: the clock goes on until it has fired.
		for got := ""; got == ""; {
			select {
			case got = <-warned:
				if !strings.HasPrefix(got, "VolumePermissionChangeInProgress: Setting volume ownership for volume v is taking longer") {
					t.Errorf("warning %q", got)
				}
			case <-time.After(5 * time.Millisecond):
				clock.Advance(d)
			}
		}
	}
	slow.Remove()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
