package flexvolume

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

var _ volumeplugin.Expander = (*Plugin)(nil)

// NodeExpand has the driver enlarge the volume and then what is on it. The first of them,
// expandvolume, is run by a controller elsewhere; here nobody but the node can. A driver that
// leaves the filesystem to the kubelet gets it enlarged by the system's tools, and one whose
// capabilities say so has nothing enlarged on it.
func (p *Plugin) NodeExpand(ctx context.Context, s *volumeplugin.Spec, a volumeplugin.ExpandArgs) error {
	if s.PV == nil {
		return fmt.Errorf("PersistentVolume not found for spec: %s", s.Name())
	}
	name := s.Name()
	options, err := p.options(ctx, s, nil, nil)
	if err != nil {
		return err
	}
	path, err := p.DeviceMountPath(s)
	if err != nil {
		return err
	}
	next, last := strconv.FormatInt(a.NewSize.Value(), 10), strconv.FormatInt(a.OldSize.Value(), 10)
	if _, err := p.call(ctx, name, "expandvolume", options, path, next, last); err != nil && !errors.Is(err, errNotSupported) {
		return err
	}
	p.host.Point(pointExpanded, name)
	if !is(p.caps.RequiresFSResize) {
		return nil
	}
	n, err := readNote(path)
	if err != nil && p.DeviceMountable(s) {
		return fmt.Errorf("find the device of volume %s: %w", name, err)
	}
	_, err = p.call(ctx, name, "expandfs", options, n.device, a.StagePath, next, last)
	if errors.Is(err, errNotSupported) {
		return p.resize(ctx, name, n.device, a.StagePath)
	}
	return err
}

// resize makes a filesystem as large as its device.
func (p *Plugin) resize(ctx context.Context, volume, device, path string) error {
	return p.host.Kernel(ctx, "resize", volume, func() error {
		if p.host.Simulated {
			return nil // a directory is as large as it needs to be
		}
		_, err := mount.NewResizeFs(exec.New()).Resize(device, path)
		return err
	})
}
