package csi

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// kubeletOwns tells whether the kubelet, not the driver, applies fsGroup.
func (m *mounter) kubeletOwns(r *request, a volumeplugin.SetUpArgs) bool {
	if a.FSGroup == nil || r.policy == storagev1.NoneFSGroupPolicy || r.Readonly {
		return false
	}
	if r.policy == storagev1.FileFSGroupPolicy {
		return true
	}
	if r.access.fsType == "" {
		return false
	}
	return m.spec.PV == nil || slices.Contains(m.spec.PV.Spec.AccessModes, v1.ReadWriteOnce) ||
		slices.Contains(m.spec.PV.Spec.AccessModes, v1.ReadWriteOncePod)
}

// Modes that a group gets. Setgid makes new files inherit the group.
const (
	groupFile   = 0o660
	groupDir    = 0o110
	groupAtRoot = 0o770
)

type ownership struct {
	root   string
	group  int64
	policy *v1.PodFSGroupChangePolicy
	volume string
	warn   func(reason, message string)
}

// applyGroup gives a volume's files to a group: children before their directory and
// the root last, so that the root's mode marks completion. Links are not followed.
func applyGroup(ctx context.Context, h *volumeplugin.Host, o ownership) error {
	if o.policy != nil && *o.policy == v1.FSGroupChangeOnRootMismatch && o.rootMatches() {
		return nil
	}
	var done atomic.Int64
	stop := o.watch(ctx, h, &done)
	defer stop()
	root, err := filepath.EvalSymlinks(o.root)
	if err != nil {
		return err
	}
	return walk(ctx, root, func(path string, fi fs.FileInfo) {
		done.Add(1)
		if err := lchown(path, int(o.group)); err != nil {
			h.Log.Warn().Err(err).Str("path", path).Msg("change group")
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			return
		}
		mode := fi.Mode() | groupFile
		if fi.IsDir() {
			mode |= groupDir | fs.ModeSetgid
		}
		if err := os.Chmod(path, mode); err != nil {
			h.Log.Warn().Err(err).Str("path", path).Msg("change mode")
		}
	})
}

func (o ownership) rootMatches() bool {
	fi, err := os.Stat(o.root)
	return err == nil && groupOf(fi) == o.group && fi.Mode().Perm()&groupAtRoot == groupAtRoot && fi.Mode()&fs.ModeSetgid != 0
}

// watch warns the pod's owner after 30 s, then every minute, while the walk goes on.
func (o ownership) watch(ctx context.Context, h *volumeplugin.Host, done *atomic.Int64) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		wait := 30 * time.Second
		for {
			t := h.Lab.Clock.NewTimer(wait)
			select {
			case <-t.C():
				if o.warn != nil {
					o.warn("VolumePermissionChangeInProgress", fmt.Sprintf(
						"Setting volume ownership for volume %s is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods. Processed %d files.",
						o.volume, done.Load()))
				}
				wait = time.Minute
			case <-quit:
				t.Stop()
				return
			case <-ctx.Done():
				t.Stop()
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
