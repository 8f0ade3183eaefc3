package fakecloud_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

const victimDir = "DRYDOCK_TEST_VICTIM"

// victim is the other process of the tests below: itself a test of this binary.
func victim(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func onFiles(t *testing.T, dir, kind string, cfg fakecloud.Config) *rig {
	r := &rig{tb: t, dir: dir, lab: lab.New(lab.Options{})}
	cfg.DB, cfg.Lab, cfg.Log = filepath.Join(dir, "cloud.db"), r.lab, zerolog.Nop()
	r.cfg = cfg
	r.reboot(kind)
	r.open()
	return r
}

// TestKill9 lets a process create, attach, resize, snapshot, detach and delete on
// loop devices from several sides at once and kills it at random instants.
func TestKill9(t *testing.T) {
	if dir := os.Getenv(victimDir); dir != "" {
		hammer(onFiles(t, dir, "loop", fakecloud.Config{Limits: fakecloud.Limits{NoDropletLock: true}}))
		return
	}
	if why := privileged("loop"); why != "" {
		t.Skip(why)
	}
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 6 {
		cmd := victim(t, "TestKill9", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := map[string]bool{} // volumes whose creation was answered, deletion not asked for
		lines := bufio.NewScanner(out)
		for n := 20 + random.IntN(120); n > 0 && lines.Scan(); n-- {
			note(acknowledged, lines.Text())
		}
		_ = cmd.Process.Kill()
		for lines.Scan() {
			note(acknowledged, lines.Text())
		}
		_ = cmd.Wait()

		r := onFiles(t, dir, "loop", fakecloud.Config{Limits: fakecloud.Limits{NoDropletLock: true}})
		r.settled()
		r.agrees()
		for name := range acknowledged {
			if _, err := r.cloud.VolumeByName(name, "nyc3"); err != nil {
				t.Errorf("round %d: volume %s was acknowledged and is lost", round, name)
			}
		}
		for _, a := range r.actions() {
			if a.Status != fakecloud.Completed {
				t.Errorf("round %d: action %+v", round, a)
			}
		}
		r.must(r.cloud.Close())
		r.must(r.devices.Close())
	}
}

func note(acknowledged map[string]bool, line string) {
	if name, ok := strings.CutPrefix(line, "created "); ok {
		acknowledged[name] = true
	}
	if name, ok := strings.CutPrefix(line, "deleting "); ok {
		delete(acknowledged, name)
	}
}

// hammer works until it is killed and says what it has done and is about to do.
func hammer(r *rig) {
	ctx := context.Background()
	run := time.Now().UnixNano()
	var wg sync.WaitGroup
	for side := range 4 {
		wg.Go(func() {
			n1, err := r.cloud.EnsureDroplet(ctx, fmt.Sprintf("n%d", side%2+1))
			r.must(err)
			act := func(q fakecloud.Request) {
				a, err := r.cloud.Start(ctx, q)
				r.must(err)
				_, err = r.cloud.Wait(ctx, a.ID)
				r.must(err)
			}
			for i := 0; ; i++ {
				name := fmt.Sprintf("v-%d-%d-%d", run, side, i)
				v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: name, Region: "nyc3", SizeGiB: 1})
				r.must(err)
				fmt.Printf("created %s\n", name)
				act(fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: n1})
				act(fakecloud.Request{Type: fakecloud.ResizeVolume, Volume: v.ID, SizeGiB: 2})
				s, err := r.cloud.CreateSnapshot(ctx, fakecloud.NewSnapshot{Volume: v.ID, Name: name})
				r.must(err)
				act(fakecloud.Request{Type: fakecloud.DetachVolume, Volume: v.ID, Droplet: n1})
				r.must(r.cloud.DeleteSnapshot(ctx, s.ID))
				fmt.Printf("deleting %s\n", name)
				r.must(r.cloud.DeleteVolume(ctx, v.ID))
			}
		})
	}
	wg.Wait()
}

// TestFullDisk fills the disk under images and database: what cannot be done is
// refused in words, what exists goes on, and with space all is well again.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(victimDir); dir != "" {
		fillDisk(t, dir)
		return
	}
	if why := privileged("loop"); why != "" {
		t.Skip(why)
	}
	dir := t.TempDir()
	out, err := victim(t, "TestFullDisk", dir).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func fillDisk(t *testing.T, dir string) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	r := onFiles(t, dir, "sim", fakecloud.Config{})
	ctx := context.Background()
	v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "before", Region: "nyc3", SizeGiB: 1})
	r.must(err)
	n1, err := r.cloud.EnsureDroplet(ctx, "n1")
	r.must(err)
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	r.must(err)
	if _, err := io.Copy(f, neverEnding{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f.Close()
	made := 0
	for ; made < 10000; made++ {
		_, err = r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: fmt.Sprintf("v%d", made), Region: "nyc3", SizeGiB: 1})
		if err != nil {
			break
		}
	}
	if fakecloud.KindOf(err) != fakecloud.Full || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("a create on a full disk: %v", err)
	}
	r.agrees()
	if _, err := r.cloud.Start(ctx, fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: n1}); fakecloud.KindOf(err) != fakecloud.Full {
		t.Errorf("an attach on a full disk: %v", err)
	}
	r.must(os.Remove(ballast))
	a, err := r.cloud.Start(ctx, fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: n1})
	r.must(err)
	if a, err = r.cloud.Wait(ctx, a.ID); err != nil || a.Status != fakecloud.Completed {
		t.Errorf("an attach with space again: %+v, %v", a, err)
	}
	r.must(r.cloud.Close())
	r.open()
	r.agrees()
	if _, total := r.cloud.Volumes(fakecloud.VolumeFilter{}, fakecloud.Page{}); total != made+1 {
		t.Errorf("%d volumes after a restart, %d were acknowledged", total, made+1)
	}
	r.must(r.cloud.Close())
	r.must(r.devices.Close())
	r.must(unix.Unmount(dir, 0))
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }
