package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// kubeletDir is where drivers expect the kubelet's directory.
const kubeletDir = "/var/lib/kubelet"

// isolate makes the process that enters the node the first one of a process namespace.
func (s Spec) isolate(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: !terminal}
	if s.Process != 0 {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
	}
}

// inside is the life of that first process: it enters the node, starts the program,
// buries what the program leaves behind, and ends with the program. The kernel ends the rest.
func inside(s Spec, argv []string) int {
	os.Unsetenv(marker)
	// Namespaces belong to threads. This one goes, and what it starts is where it went.
	runtime.LockOSThread()
	if err := s.enter(); err != nil {
		fmt.Fprintf(os.Stderr, "drydock: enter node %s: %v\n", s.Node, err)
		return ExitNotEntered
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drydock: node %s: %v\n", s.Node, err)
		return ExitNotFound
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fmt.Fprintf(os.Stderr, "drydock: node %s: run %s: %v\n", s.Node, argv[0], err)
		return ExitNotRunnable
	}
	go func() {
		for sig := range signals {
			// A terminal has told the program too; anybody else has told only the first process.
			if n, ok := sig.(syscall.Signal); ok && (!fromTerminal(sig) || !foreground()) {
				syscall.Kill(pid, n)
			}
		}
	}()
	for {
		var w syscall.WaitStatus
		dead, err := syscall.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return ExitNotEntered
		case dead == pid && !w.Stopped():
			return statusCode(w)
		}
	}
}

// foreground tells whether a terminal drives this process.
func foreground() bool {
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	return err == nil
}

// enter moves this thread to the node.
func (s Spec) enter() error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", s.Process))
	if err != nil {
		return fmt.Errorf("find the cluster's mount namespace: %w; be the user who started the cluster", err)
	}
	defer ns.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the thread's file system context: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the cluster's mount namespace: %w", err)
	}
	// Not by a flag of the fork: Go would make everything private then, and nothing would reach the cluster.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Where a container forbids another proc, the old one stays: it shows the processes of the machine.
	unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err := s.showDevices(); err != nil {
		return err
	}
	if err := s.showKubelet(); err != nil {
		return err
	}
	if os.Chdir(s.Dir) != nil {
		return os.Chdir("/")
	}
	return nil
}

// showDevices puts the node's links where drivers look for disks.
func (s Spec) showDevices() error {
	const disk = "/dev/disk"
	byID := filepath.Join(disk, "by-id")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount a directory for disks on %s: %w", disk, err)
	}
	if err := os.Mkdir(byID, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(s.Links, byID, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the node's disks in %s: %w", byID, err)
	}
	return nil
}

// showKubelet puts the kubelet's directory where drivers expect it. It is the same
// shared mount as at its own path, so mounts below either appear below the other.
func (s Spec) showKubelet() error {
	if _, err := os.Stat(kubeletDir); errors.Is(err, fs.ErrNotExist) {
		if err := s.mirror(filepath.Dir(kubeletDir)); err != nil {
			return fmt.Errorf("make room for %s: %w", kubeletDir, err)
		}
		if err := os.Mkdir(kubeletDir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(s.Kubelet, kubeletDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show the kubelet's directory at %s: %w", kubeletDir, err)
	}
	return nil
}

// mirror puts a directory of memory over dir in which everything of dir is, so that
// something can be added without touching the machine's.
func (s Spec) mirror(dir string) error {
	if err := os.MkdirAll(s.Scratch, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", s.Scratch, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(dir, e.Name()), filepath.Join(s.Scratch, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return err
			}
			continue
		case e.IsDir():
			err = os.Mkdir(to, 0o755)
		default:
			err = os.WriteFile(to, nil, 0o644)
		}
		if err == nil {
			err = unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return err
		}
	}
	return unix.Mount(s.Scratch, dir, "", unix.MS_MOVE, "")
}
