package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"drydock.dev/drydock/internal/lab"
)

// grow enlarges the file at path and has the device of an attached volume follow.
// Size tells how large the device is: what was never shown holds no data.
func (b *base) grow(ctx context.Context, v Volume, where func() string, from, to int64, follow func(*attachment) error, size func(*attachment) (int64, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("grow volume %s: %w", v.Name, err)
		}
	}()
	unlock, err := b.lock(ctx, v.ID)
	if err != nil {
		return err
	}
	defer unlock()
	a, node, path := b.attachment(v.ID), "", where()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	shown := info.Size()
	if a != nil {
		node = a.node()
		if shown, err = size(a); err != nil {
			return err
		}
	}
	if min(shown, info.Size()) >= to {
		return nil
	}
	if _, err = b.op(ctx, "truncate", v, node, func() error { return enlarge(path, to) }); err == nil && a != nil {
		lab.ComponentFrom(ctx).Point(pointGrown, v.Name)
		var done bool
		if done, err = b.op(ctx, "loop-resize", v, node, func() error { return follow(a) }); done {
			return nil
		}
	}
	if err == nil {
		return nil
	}
	if a != nil {
		if shown, e := size(a); e != nil || shown > from {
			return err
		}
	}
	if info, e := os.Stat(path); e == nil && info.Size() > from {
		if e := os.Truncate(path, from); e != nil {
			return fmt.Errorf("%w; and %w", err, e)
		}
	}
	return err
}

// enlarge never shrinks: that would cut data off.
func enlarge(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() >= size {
		return err
	}
	err = setSize(size, func(n int64) error { return os.Truncate(path, n) })
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// A simulated device that is attached read-only; without privileges its mode counts.
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	err = setSize(size, func(n int64) error { return os.Truncate(path, n) })
	return errors.Join(err, os.Chmod(path, info.Mode().Perm()))
}

// Slack is by how much an image may fall short of a volume of the largest size:
// ext4 keeps no file of 16 TiB, only of one block less.
const Slack = 64 << 10

// setSize truncates to size, or to just below it where a file cannot have it.
func setSize(size int64, truncate func(int64) error) error {
	err := truncate(size)
	if errors.Is(err, syscall.EFBIG) && truncate(size-Slack) == nil {
		return nil
	}
	return err
}
