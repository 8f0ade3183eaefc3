package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
)

// Stats asks a driver how full a volume is, at the path where it is published, or for a
// block volume at its device. Nil without an error means that the driver cannot tell.
func (p *Plugin) Stats(ctx context.Context, driver, handle, path string) (*csipb.NodeGetVolumeStatsResponse, error) {
	c, err := p.drivers.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	if can, err := c.has(ctx, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS); err != nil || !can {
		return nil, err
	}
	r, err := c.node.NodeGetVolumeStats(ctx, &csipb.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: path})
	c.done(err)
	if err != nil {
		return nil, fmt.Errorf("get stats of volume %s at %s: %w", handle, path, err)
	}
	return r, nil
}
