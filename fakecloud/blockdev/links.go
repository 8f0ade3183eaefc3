package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// linkPath is where a volume's link belongs, or empty.
func (b *base) linkPath(v Volume, droplet string) (string, error) {
	if b.o.Links == nil {
		return "", nil
	}
	dir := b.o.Links(droplet)
	if dir == "" {
		return "", nil
	}
	if v.Name == "" || strings.ContainsAny(v.Name, "/\x00") {
		return "", fmt.Errorf("link volume %q: the name cannot be a file name", v.Name)
	}
	return filepath.Join(dir, LinkPrefix+v.Name), nil
}

// link makes path point to device in one step: a reader finds the old target, the
// new one, or nothing, never half a link.
func (b *base) link(ctx context.Context, v Volume, droplet, path, device string) error {
	if path == "" {
		return nil
	}
	done, err := b.op(ctx, "link", v, droplet, func() error {
		// Nearly always the directory is there and the link is not.
		err := os.Symlink(device, path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.Symlink(device, path)
			}
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		tmp := path + tmpSuffix
		if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(device, tmp); err != nil {
			return err
		}
		if err := os.Rename(tmp, path); err != nil {
			os.Remove(tmp)
			return err
		}
		return nil
	})
	if err != nil && done {
		os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

const tmpSuffix = ".drydock-tmp"

// unlink removes the link if it is still the one that names device. Done tells
// whether it is gone, whatever the error says.
func (b *base) unlink(ctx context.Context, v Volume, droplet, path, device string) (done bool, err error) {
	if path == "" {
		return true, nil
	}
	done, err = b.op(ctx, "unlink", v, droplet, func() error {
		target, err := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case target != device:
			return nil
		}
		return os.Remove(path)
	})
	if err != nil {
		return done, fmt.Errorf("unlink %s: %w", path, err)
	}
	return true, nil
}

// links lists the volume links in the droplets' directories.
func (b *base) links(droplets []string) ([]Link, error) {
	if b.o.Links == nil {
		return nil, nil
	}
	var out []Link
	for _, d := range droplets {
		dir := b.o.Links(d)
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), LinkPrefix) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			target, err := os.Readlink(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				target = ""
			}
			out = append(out, Link{Droplet: d, Path: path, Target: target})
		}
	}
	return out, nil
}

// sweepLinks removes the links that no attachment made. It skips links whose
// attachment is just being made or undone only if nobody calls it meanwhile: it
// belongs before the first Attach.
func (b *base) sweepLinks(droplets []string) error {
	links, err := b.links(droplets)
	if err != nil {
		return fmt.Errorf("sweep device links: %w", err)
	}
	b.mu.Lock()
	wanted := map[string]string{}
	for _, a := range b.attached {
		for _, link := range a.links {
			wanted[link] = a.device
		}
	}
	b.mu.Unlock()
	for _, l := range links {
		if device, ok := wanted[l.Path]; ok && device == l.Target {
			continue
		}
		if err := os.Remove(l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sweep device links: %w", err)
		}
	}
	return nil
}

// removeLinks takes a closing backend's links away.
func (b *base) removeLinks(a *attachment) {
	for _, link := range a.links {
		if target, err := os.Readlink(link); err == nil && target == a.device {
			os.Remove(link)
		}
	}
}
