// Package subpath shows a container part of a volume: a directory or a file in it is
// bound to a path of the pod's own, which the container gets instead of the volume.
//
//	pods/<uid>/volume-subpaths/<inner name>/<container>/<index>
//
// The index counts all of the container's volumeMounts. A bind stays when its
// container ends, and goes with the volume: [Clean] comes before the volume itself is
// taken from the pod.
//
// Promise. Whatever links a volume holds, and whoever changes them meanwhile, nothing
// outside the volume is made or shown.
package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

func point(name string) lab.Point { return lab.Point{Component: "kubelet", Name: name} }

var (
	pointMade    = point("after making the target of a subPath, before it is bound")
	pointBound   = point("after a subPath is bound, before its container starts")
	pointUnbound = point("after a subPath's bind is taken away, before its target is removed")
	pointCleaned = point("after the subPaths of a volume are removed, before the volume is taken from the pod")
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point { return []lab.Point{pointMade, pointBound, pointUnbound, pointCleaned} }

// Path is one volumeMount of a container with a subPath.
type Path struct {
	Pod       types.UID
	Volume    string // inner name
	Root      string // where the pod finds the volume
	Container string
	Index     int // of the volumeMount
	SubPath   string
}

// Check refuses subPaths that lead out of a volume by their words alone.
func Check(sub string) error {
	if filepath.IsAbs(sub) {
		return fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(filepath.ToSlash(sub), "/"), "..") {
		return fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return nil
}

// Prepare binds a subPath, and makes the directory in the volume if it is not there.
// It returns the path for the container. What is bound already is left as it is.
func Prepare(ctx context.Context, h *volumeplugin.Host, p Path) (string, error) {
	if err := Check(p.SubPath); err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(p.Root)
	if err != nil {
		return "", fmt.Errorf("failed to prepare subPath of volume %q: %w", p.Volume, err)
	}
	source, err := openInside(root, filepath.Clean(p.SubPath))
	if err != nil {
		return "", fmt.Errorf("subpath %q of volume %q: %w", p.SubPath, p.Volume, err)
	}
	defer source.Close()
	target := filepath.Join(h.Layout.PodSubPaths(p.Pod), p.Volume, p.Container, strconv.Itoa(p.Index))
	bound, err := makeTarget(ctx, h, p.Volume, target, source)
	if err != nil || bound {
		return target, err
	}
	h.Point(pointMade, p.Volume)
	from := source.Name()
	if !h.Simulated && throughDescriptor {
		from = fmt.Sprintf("/proc/self/fd/%d", source.Fd())
	}
	err = h.Kernel(ctx, "mount", p.Volume, func() error { return h.Mounter.Mount(from, target, "", []string{"bind"}) })
	if err != nil {
		return "", fmt.Errorf("error mounting %s: %w", p.SubPath, err)
	}
	h.Point(pointBound, p.Volume)
	return target, nil
}

// makeTarget makes an empty target of the source's kind, unless the source is bound there.
func makeTarget(ctx context.Context, h *volumeplugin.Host, volume, target string, source *os.File) (bound bool, err error) {
	want, err := source.Stat()
	if err != nil {
		return false, err
	}
	is, err := h.Mounter.IsMountPoint(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("error checking path %s for mount: %w", target, err)
	}
	if is {
		if have, err := os.Stat(target); err == nil && os.SameFile(have, want) {
			return true, nil
		}
		if err := unbind(ctx, h, volume, target); err != nil {
			return false, err
		}
	}
	if have, err := os.Lstat(target); err == nil && have.IsDir() != want.IsDir() {
		if err := os.Remove(target); err != nil {
			return false, err
		}
	}
	if want.IsDir() {
		return false, os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return false, err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

func unbind(ctx context.Context, h *volumeplugin.Host, volume, target string) error {
	err := h.Kernel(ctx, "unmount", volume, func() error { return h.Mounter.Unmount(target) })
	if err != nil {
		return fmt.Errorf("error unmounting %s: %w", target, err)
	}
	return nil
}

// Clean unbinds and removes all that a pod's containers have of a volume.
func Clean(ctx context.Context, h *volumeplugin.Host, uid types.UID, volume string) error {
	dir := filepath.Join(h.Layout.PodSubPaths(uid), volume)
	containers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("error reading %s: %w", dir, err)
	}
	for _, c := range containers {
		if !c.IsDir() {
			continue
		}
		if err := cleanContainer(ctx, h, volume, filepath.Join(dir, c.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("error deleting %s: %w", dir, err)
	}
	os.Remove(h.Layout.PodSubPaths(uid)) // other volumes may have theirs in it
	h.Point(pointCleaned, volume)
	return nil
}

func cleanContainer(ctx context.Context, h *volumeplugin.Host, volume, dir string) error {
	leaves, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("error reading %s: %w", dir, err)
	}
	for _, l := range leaves {
		target := filepath.Join(dir, l.Name())
		is, err := h.Mounter.IsMountPoint(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("error checking path %s for mount: %w", target, err)
		}
		if is {
			if err := unbind(ctx, h, volume, target); err != nil {
				return err
			}
		}
		h.Point(pointUnbound, volume)
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("error deleting %s: %w", target, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("error deleting %s: %w", dir, err)
	}
	return nil
}
