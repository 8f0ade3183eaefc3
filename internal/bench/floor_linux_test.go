package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const gib = 1 << 30

// raise does what one volume costs when nothing but the kernel and mkfs do the work: the
// sparse file, the loop device, the filesystem, the mount and the bind mount. It
// returns how long that took, and what undoes it.
func raise(dir, name string, size int64) (took time.Duration, undo func() (time.Duration, error), err error) {
	img, stage, pod := filepath.Join(dir, name+".img"), filepath.Join(dir, name+".stage"), filepath.Join(dir, name+".pod")
	begin := time.Now()
	file, err := os.OpenFile(img, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return 0, nil, err
	}
	loop, path, err := configure(file)
	if err != nil {
		return 0, nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m0", path).CombinedOutput(); err != nil {
		return 0, nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	for _, d := range []string{stage, pod} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return 0, nil, err
		}
	}
	if err := unix.Mount(path, stage, "ext4", 0, ""); err != nil {
		return 0, nil, fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount(stage, pod, "", unix.MS_BIND, ""); err != nil {
		return 0, nil, fmt.Errorf("bind mount: %w", err)
	}
	return time.Since(begin), func() (time.Duration, error) {
		defer unix.Close(loop)
		begin := time.Now()
		for _, d := range []string{pod, stage} {
			if err := unix.Unmount(d, 0); err != nil {
				return 0, fmt.Errorf("unmount: %w", err)
			}
			if err := os.Remove(d); err != nil {
				return 0, err
			}
		}
		if err := unix.IoctlSetInt(loop, unix.LOOP_CLR_FD, 0); err != nil {
			return 0, fmt.Errorf("release loop device: %w", err)
		}
		err := os.Remove(img)
		return time.Since(begin), err
	}, nil
}

// configure binds a free loop device to the file. Another process may take the device first; then it takes the next.
func configure(file *os.File) (int, string, error) {
	ctl, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, "", err
	}
	defer unix.Close(ctl)
	for {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return 0, "", err
		}
		path := "/dev/loop" + strconv.Itoa(n)
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, "", err
		}
		cfg := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(fd, &cfg)
		if err == nil {
			return fd, path, nil
		}
		unix.Close(fd)
		if err != unix.EBUSY {
			return 0, "", fmt.Errorf("configure %s: %w", path, err)
		}
	}
}
