package driver

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc/codes"
)

// linkPrefix is how the droplet's udev names the link of an attached volume.
const linkPrefix = "scsi-0DO_Volume_"

// deviceWait is how long a device may be late after the cloud said that it is attached.
const (
	deviceWait     = 15 * time.Second
	firstDeviceTry = 5 * time.Millisecond
	longDeviceTry  = 500 * time.Millisecond
)

func (n *node) link(v volume) string { return filepath.Join(n.deviceDir, linkPrefix+v.name) }

// volumeOf reads what a call says about the volume.
func (n *node) volumeOf(id string, publish map[string]string) (volume, error) {
	v := volume{id: VolumeID(id), name: publish[n.name+keyVolumeName]}
	if v.name == "" {
		return v, errorf(codes.InvalidArgument,
			"volume %s: the publish context has no %q; the volume has to be attached by this driver's ControllerPublishVolume first", id, n.name+keyVolumeName)
	}
	if v.name != filepath.Base(v.name) || v.name == "." || v.name == ".." {
		return v, errorf(codes.InvalidArgument, "volume %s: %q cannot be the name of a volume", id, v.name)
	}
	if s := publish[n.name+keyVolumeSize]; s != "" {
		size, err := strconv.ParseInt(s, 10, 64)
		if err != nil || size < 0 {
			return v, errorf(codes.InvalidArgument, "volume %s: the publish context has %q as its size", id, s)
		}
		v.size = size
	}
	return v, nil
}

// locate finds the volume's device. The link may be late, or lead to another disk at
// first; locate waits for it to come right, for a while, and not beyond ctx.
func (n *node) locate(ctx context.Context, v volume) (d *device, err error) {
	err = n.ops.kernel(ctx, "device", "wait for device", string(v.id), func(ctx context.Context) error {
		d, err = n.await(ctx, v)
		return err
	})
	if err != nil && d != nil {
		d.close() // a fault took the answer
		d = nil
	}
	return d, err
}

func (n *node) await(ctx context.Context, v volume) (*device, error) {
	link := n.link(v)
	d, err := n.machine.open(link, v)
	if !errors.Is(err, errNotYet) {
		return d, err
	}
	// Changes of the directory wake us; the timer is for what makes no such change.
	events := make(chan fsnotify.Event)
	if w, e := fsnotify.NewBufferedWatcher(16); e == nil {
		defer w.Close()
		if w.Add(n.deviceDir) == nil {
			events = w.Events
		}
	}
	late := n.ops.lab.Clock.NewTimer(deviceWait)
	defer late.Stop()
	for pause := firstDeviceTry; ; pause = min(2*pause, longDeviceTry) {
		if d, err = n.machine.open(link, v); !errors.Is(err, errNotYet) {
			return d, err
		}
		t := n.ops.lab.Clock.NewTimer(pause)
		select {
		case <-events:
		case <-t.C():
		case <-late.C():
			t.Stop()
			return nil, errorf(codes.Unavailable, "the device of volume %s did not come within %v: %w; is the volume attached to this node?", v.id, deviceWait, err)
		case <-ctx.Done():
			t.Stop()
			cause := context.Cause(ctx)
			return nil, errorf(codeOf(cause), "waiting for the device of volume %s: %w: %w", v.id, err, cause)
		}
		t.Stop()
	}
}
