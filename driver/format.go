package driver

import (
	"context"

	"google.golang.org/grpc/codes"
)

// todo is what has to be done to a device before it can be mounted.
type todo int

const (
	mountOnly  todo = iota // it holds the filesystem
	formatIt               // it is blank, or a format of ours was cut short
	finishIt               // a format of ours may have been cut short just before its end
	refuseToDo             // with an error
)

// decide is the rule by which a device is formatted, kept or refused. Wanted is empty
// where any filesystem will do.
//
//	recognised   mark   other data   ->
//	wanted fs    no     -               mount it
//	wanted fs    ours   -               never mounted: finish it, else mount it
//	other fs     any    -               refuse
//	anything     any    -               refuse
//	nothing      ours   any             format it: the mark is erased before the first
//	                                    mount, so no user can have written to the device
//	nothing      no     none            format it
//	nothing      no     some            refuse
func decide(c content, wanted FSType) (todo, error) {
	switch {
	case c.other != "":
		return refuseToDo, errorf(codes.FailedPrecondition, "it holds a %s; it is left as it is; use a raw block volume, or wipe it by hand", c.other)
	case c.fs != "" && wanted != "" && c.fs != wanted:
		return refuseToDo, errorf(codes.FailedPrecondition, "it holds a filesystem %s and not %s as asked for; its data are left as they are; ask for %s", c.fs, wanted, c.fs)
	case c.fs != "" && c.marked == c.fs && c.fresh:
		return finishIt, nil
	case c.fs != "":
		return mountOnly, nil
	case c.marked != "":
		return formatIt, nil
	case c.used != "":
		return refuseToDo, errorf(codes.FailedPrecondition,
			"no filesystem is recognised on it, but it is not blank: there is data at %s; it is not formatted, so that nothing is lost; repair or wipe it by hand", c.used)
	}
	return formatIt, nil
}

// prepare brings the device to where it can be mounted and returns its filesystem.
// With readonly it writes nothing.
func (n *node) prepare(ctx context.Context, d *device, wanted FSType, readonly bool) (FSType, error) {
	var c content
	err := n.ops.traced(ctx, "probe device", string(d.id), func(ctx context.Context) (err error) {
		c, err = n.machine.probe(ctx, d)
		return err
	})
	if err != nil {
		return "", errorf(codeOf(err), "find out what is on %s: %w; it is not touched until that is known", d.path, err)
	}
	what, err := decide(c, wanted)
	if err != nil {
		return "", err
	}
	fs := c.fs
	if fs == "" {
		fs = wanted
	}
	if fs == "" {
		fs = DefaultFS
	}
	if readonly {
		if what == formatIt {
			return "", errorf(codes.FailedPrecondition, "it is blank, and is to be mounted read-only; mount it for writing once, so that it can be formatted")
		}
		return fs, nil
	}
	switch what {
	case formatIt:
		return fs, n.format(ctx, d, c, fs)
	case finishIt:
		return fs, n.finish(ctx, d, c, fs)
	}
	if err := n.repair(ctx, d, fs); err != nil {
		return "", err
	}
	return fs, nil
}

// format makes the filesystem, between a mark and its erasure. It goes on when the
// caller goes away: half a filesystem is of no use to anybody.
func (n *node) format(ctx context.Context, d *device, c content, fs FSType) error {
	n.ops.at(pointProven, string(d.id))
	if c.marked != fs {
		if err := n.machine.mark(ctx, d, fs); err != nil {
			return errorf(codeOf(err), "write the format mark on %s: %w", d.path, err)
		}
	}
	n.ops.at(pointMarked, string(d.id))
	ctx = n.outlive(ctx)
	err := n.ops.kernel(ctx, "mkfs", "mkfs."+string(fs), string(d.id), func(ctx context.Context) error { return n.machine.format(ctx, d, fs) })
	if err != nil {
		return errorf(codeOf(err), "format %s with %s: %w; a next try starts over", d.path, fs, err)
	}
	n.ops.at(pointFormatted, string(d.id))
	return n.unmark(ctx, d)
}

// finish takes a filesystem for ours and complete if it is sound, and makes it anew if not.
func (n *node) finish(ctx context.Context, d *device, c content, fs FSType) error {
	sound := false
	err := n.ops.kernel(ctx, "fsck", "fsck."+string(fs), string(d.id), func(ctx context.Context) (err error) {
		sound, err = n.machine.sound(ctx, d, fs)
		return err
	})
	if err != nil {
		return errorf(codeOf(err), "check the new filesystem on %s: %w", d.path, err)
	}
	if !sound {
		return n.format(ctx, d, c, fs)
	}
	return n.unmark(ctx, d)
}

func (n *node) unmark(ctx context.Context, d *device) error {
	if err := n.machine.unmark(ctx, d); err != nil {
		return errorf(codeOf(err), "erase the format mark on %s: %w", d.path, err)
	}
	n.ops.at(pointUnmarked, string(d.id))
	return nil
}

// repair checks a filesystem that has been used before. One that is mounted somewhere
// on this machine is in use, and is not looked at.
func (n *node) repair(ctx context.Context, d *device, fs FSType) error {
	list, err := n.mounter.List()
	if err != nil {
		return errorf(codes.Internal, "list what is mounted: %w", err)
	}
	for _, m := range list {
		if m.Device == d.path {
			return nil
		}
	}
	err = n.ops.kernel(ctx, "fsck", "fsck."+string(fs), string(d.id), func(ctx context.Context) error { return n.machine.repair(ctx, d, fs) })
	if err != nil {
		return errorf(codeOf(err), "check filesystem %s on %s: %w", fs, d.path, err)
	}
	if fs == "xfs" {
		return nil // grows only when mounted; growMounted does it
	}
	if err := n.machine.grow(ctx, d, fs, ""); err != nil {
		return errorf(codeOf(err), "grow filesystem %s on %s to the device's size: %w", fs, d.path, err)
	}
	return nil
}
