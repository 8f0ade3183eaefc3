package pluginmanager

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/util/version"

	"drydock.dev/drydock/internal/lab"
)

var (
	pointEndpoint = lab.Point{Component: "kubelet", Name: "after a driver's endpoint is stored, before NodeGetInfo"}
	pointNodeInfo = lab.Point{Component: "kubelet", Name: "after NodeGetInfo, before the Node is patched"}
	pointNode     = lab.Point{Component: "kubelet", Name: "after the Node is patched with a driver's node id, before CSINode is updated"}
	pointCSINode  = lab.Point{Component: "kubelet", Name: "after CSINode is updated, before the driver is told that it is registered"}
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point {
	return []lab.Point{pointEndpoint, pointNodeInfo, pointNode, pointCSINode}
}

// Drivers is where CSI drivers are made known to the volume plugin.
type Drivers interface {
	Register(driver, endpoint, version string)
	Unregister(driver string)
	Registered(driver string) (version string, ok bool)
	NodeInfo(ctx context.Context, driver string) (*csipb.NodeGetInfoResponse, error)
}

// CSI handles the registration of CSI drivers.
type CSI struct {
	Drivers   Drivers
	Node      *NodeInfo
	Component *lab.Component
	Log       zerolog.Logger
}

// Validate wants a usable version, and one higher than that of a driver of the same
// name: a second socket for a live driver is refused.
func (h *CSI) Validate(name, endpoint string, versions []string) error {
	_, err := h.highest(name, endpoint, versions)
	return err
}

func (h *CSI) highest(name, endpoint string, versions []string) (*version.Version, error) {
	if len(versions) == 0 {
		return nil, fmt.Errorf("CSI driver %s at endpoint %s: plugin returned an empty list for supported versions", name, endpoint)
	}
	high, err := version.HighestSupportedVersion(versions)
	if err != nil {
		return nil, fmt.Errorf("CSI driver %s at endpoint %s: none of the versions specified %q are supported: %w", name, endpoint, versions, err)
	}
	if have, ok := h.Drivers.Registered(name); ok {
		v, err := version.ParseGeneric(have)
		if err == nil && !v.LessThan(high) {
			return nil, fmt.Errorf("CSI driver %s at endpoint %s: another driver with the same name is already registered with a higher supported version: %q", name, endpoint, have)
		}
	}
	return high, nil
}

// Register stores the endpoint, asks the driver who this node is, and writes that
// to the Node and then to CSINode. After an error the driver is unknown again.
func (h *CSI) Register(ctx context.Context, name, endpoint string, versions []string) error {
	high, err := h.highest(name, endpoint, versions)
	if err != nil {
		return err
	}
	h.Drivers.Register(name, endpoint, high.String())
	h.Component.Point(pointEndpoint, "")
	if err := h.install(ctx, name); err != nil {
		h.Deregister(ctx, name, endpoint)
		return err
	}
	h.Component.Point(pointCSINode, "")
	return nil
}

func (h *CSI) install(ctx context.Context, name string) error {
	info, err := h.Drivers.NodeInfo(ctx, name)
	if err != nil {
		return err
	}
	h.Component.Point(pointNodeInfo, "")
	return h.Node.Install(ctx, name, info, func() { h.Component.Point(pointNode, "") })
}

// Introduce asks a driver that is registered who this node is, and writes it to a Node and a CSINode that do not know yet.
func (h *CSI) Introduce(ctx context.Context, name string) error {
	if err := h.install(ctx, name); err != nil {
		return fmt.Errorf("introduce driver %s: %w", name, err)
	}
	return nil
}

// Deregister forgets the driver. Its topology labels stay on the Node.
func (h *CSI) Deregister(ctx context.Context, name, _ string) {
	h.Drivers.Unregister(name)
	if err := h.Node.Uninstall(ctx, name); err != nil && ctx.Err() == nil {
		h.Log.Error().Err(err).Str("driver", name).Msg("take a driver off the node")
	}
}

// Refresh asks a driver again how many volumes fit, and writes it to CSINode.
func (h *CSI) Refresh(ctx context.Context, name string) error {
	info, err := h.Drivers.NodeInfo(ctx, name)
	if err != nil {
		return fmt.Errorf("refresh driver %s: %w", name, err)
	}
	return h.Node.update(ctx, name, info)
}
