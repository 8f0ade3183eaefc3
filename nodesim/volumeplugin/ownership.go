package volumeplugin

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Modes that a group gets. Setgid makes new files inherit the group.
const (
	groupFile     = 0o660
	groupFileRead = 0o440
	groupDir      = 0o110
)

// Ownership is a change of a volume's group.
type Ownership struct {
	Root     string
	Group    int64
	Policy   *v1.PodFSGroupChangePolicy
	ReadOnly bool
	Volume   string // inner name
	Plugin   string // as metrics call it
	Warn     func(reason, message string)
}

// Apply gives a volume's files to a group: children before their directory and
// the root last, so that the root's mode marks completion. Links are not followed.
func (o Ownership) Apply(ctx context.Context, h *Host) error {
	if o.Policy != nil && *o.Policy == v1.FSGroupChangeOnRootMismatch && o.rootMatches() {
		return nil
	}
	var done atomic.Int64
	stop := o.watch(ctx, h, &done)
	defer stop()
	root, err := filepath.EvalSymlinks(o.Root)
	if err != nil {
		return err
	}
	began := h.Lab.Clock.Now()
	err = h.Kernel(ctx, "chown", o.Volume, func() error { return o.walk(ctx, h, root, &done) })
	h.Operations.Operation(o.Plugin, "volume_apply_access_control", h.Lab.Clock.Since(began), err)
	return err
}

func (o Ownership) walk(ctx context.Context, h *Host, root string, done *atomic.Int64) error {
	return walk(ctx, root, func(path string, fi fs.FileInfo) {
		done.Add(1)
		if err := lchown(path, int(o.Group)); err != nil {
			h.Log.Warn().Err(err).Str("path", path).Msg("change group")
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			return
		}
		mode := fi.Mode() | o.bits()
		if fi.IsDir() {
			mode |= groupDir | fs.ModeSetgid
		}
		if err := os.Chmod(path, mode); err != nil {
			h.Log.Warn().Err(err).Str("path", path).Msg("change mode")
		}
	})
}

func (o Ownership) rootMatches() bool {
	fi, err := os.Stat(o.Root)
	want := o.bits() | groupDir
	return err == nil && groupOf(fi) == o.Group && fi.Mode().Perm()&want == want && fi.Mode()&fs.ModeSetgid != 0
}

func (o Ownership) bits() fs.FileMode {
	if o.ReadOnly {
		return groupFileRead
	}
	return groupFile
}

// watch warns the pod's owner after 30 s, then every minute, while the walk goes on.
func (o Ownership) watch(ctx context.Context, h *Host, done *atomic.Int64) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	t := h.Lab.Clock.NewTimer(30 * time.Second) // from now, whenever the goroutine gets to run
	go func() {
		defer close(ended)
		defer t.Stop()
		for {
			select {
			case <-t.C():
				if o.Warn != nil {
					o.Warn("VolumePermissionChangeInProgress", fmt.Sprintf(
						"Setting volume ownership for volume %s is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods. Processed %d files.",
						o.Volume, done.Load()))
				}
				t.Reset(time.Minute)
			case <-quit:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func walk(ctx context.Context, path string, visit func(string, fs.FileInfo)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		names, err := f.Readdirnames(-1)
		f.Close()
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := walk(ctx, filepath.Join(path, n), visit); err != nil {
				return err
			}
		}
	}
	visit(path, fi)
	return nil
}
