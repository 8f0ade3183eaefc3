package cluster

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// powerOff takes away the mounts of the nodes, as switching a machine off does: pods
// that ran keep their directories and data, nothing stays mounted. It flushes first, so it loses nothing.
func (c *Cluster) powerOff() error {
	if c.tables != nil {
		return c.clearTables()
	}
	if err := unmountBelow(c.Layout.Nodes()); err != nil {
		return fmt.Errorf("power off the nodes: %w", err)
	}
	return nil
}

func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range slices.Backward(points) { // inner mounts before outer ones
		if err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW); err != nil {
			// Something of this machine's holds it open; detached, it goes when that one lets go.
			errs = append(errs, unix.Unmount(p, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}
