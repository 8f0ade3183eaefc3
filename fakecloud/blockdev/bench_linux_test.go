package blockdev_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

func benchRig(b *testing.B) (*blockdev.Loop, string) {
	if os.Geteuid() != 0 {
		b.Skip("loop devices need root")
	}
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	l, err := blockdev.NewLoop(filepath.Join(dir, "cloud"), blockdev.Options{Lab: lab.New(lab.Options{}), Links: func(d string) string { return filepath.Join(dir, d) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l, dir
}

// BenchmarkAttachDetach against the bare system calls.
func BenchmarkAttachDetach(b *testing.B) {
	b.Run("drydock", func(b *testing.B) {
		l, _ := benchRig(b)
		ctx := context.Background()
		err := l.Create(ctx, vol, blockdev.Image{Size: 1 << 30})
		for b.Loop() {
			_, e := l.Attach(ctx, vol, n1)
			err = errors.Join(err, e, l.Detach(ctx, vol))
		}
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("floor", func(b *testing.B) {
		_, dir := benchRig(b)
		file, err := os.Create(filepath.Join(dir, "image"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer control.Close()
		err = file.Truncate(1 << 30)
		for b.Loop() {
			n, e := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
			dev, e2 := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
			if e = errors.Join(err, e, e2); e != nil {
				b.Fatal(e)
			}
			config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
			err = errors.Join(unix.IoctlLoopConfigure(int(dev.Fd()), &config), unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0), dev.Close())
		}
	})
}

// BenchmarkSnapshot of 1 GiB with 100 MiB of data, against cp.
func BenchmarkSnapshot(b *testing.B) {
	l, dir := benchRig(b)
	ctx := context.Background()
	err := l.Create(ctx, vol, blockdev.Image{Size: 1 << 30})
	image := filepath.Join(dir, "cloud/volumes", string(vol.ID)+".img")
	f, e := os.OpenFile(image, os.O_RDWR, 0)
	if err = errors.Join(err, e); err != nil {
		b.Fatal(err)
	}
	for i := range int64(100) {
		block := make([]byte, mib)
		for j := range block {
			block[j] = byte(i) | 1
		}
		_, e := f.WriteAt(block, i*10*mib)
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
	b.Run("drydock", func(b *testing.B) {
		for b.Loop() {
			_, err := l.Snapshot(ctx, vol, snap, nil)
			if err = errors.Join(err, l.DeleteSnapshot(ctx, snap)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cp", func(b *testing.B) {
		for b.Loop() {
			to := filepath.Join(dir, "copy")
			if out, err := exec.Command("cp", "--sparse=auto", "--reflink=auto", image, to).CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			os.Remove(to)
		}
	})
}

// BenchmarkManyAttachDetach does it with sixteen volumes at a time.
func BenchmarkManyAttachDetach(b *testing.B) {
	l, _ := benchRig(b)
	ctx := context.Background()
	next := make(chan blockdev.Volume, 16)
	for i := range cap(next) {
		v := blockdev.Volume{ID: blockdev.VolumeID(fmt.Sprint("v", i)), Name: fmt.Sprint("v", i)}
		if err := l.Create(ctx, v, blockdev.Image{Size: 1 << 30}); err != nil {
			b.Fatal(err)
		}
		next <- v
	}
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		v := <-next
		for pb.Next() {
			_, err := l.Attach(ctx, v, n1)
			if err = errors.Join(err, l.Detach(ctx, v)); err != nil {
				b.Error(err)
			}
		}
	})
}
