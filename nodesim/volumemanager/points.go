package volumemanager

import "drydock.dev/drydock/internal/lab"

func point(name string) lab.Point { return lab.Point{Component: "kubelet", Name: name} }

var (
	pointDeviceMounted   = point("after the device is mounted, before it is recorded")
	pointMounted         = point("after the volume is mounted, before it is recorded")
	pointUnmounted       = point("after the volume is unmounted, before it is recorded")
	pointDeviceUnmounted = point("after the device is unmounted, before it is recorded")
	pointGlobalBind      = point("after binding a block device globally, before linking it into the pod")
	pointPodLink         = point("after linking a block device into the pod, before it is recorded as mapped")
	pointPodUnlinked     = point("after removing a block device's link from the pod, before its global bind")
	pointGlobalUnbound   = point("after removing a block device's global bind, before NodeUnpublish")
	pointUnmapped        = point("after the block volume is unmapped, before it is recorded")
	pointDeviceUnmapped  = point("after the block device is unmapped, before it is recorded")
	pointInProgress      = point("after the claim says that the node is expanding, before NodeExpand")
	pointResized         = point("after the claim has its new size, before the size is recorded")
	pointReconstructed   = point("after reading volumes from disk, before the first reconciliation")
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point {
	return []lab.Point{pointDeviceMounted, pointMounted, pointUnmounted, pointDeviceUnmounted, pointGlobalBind, pointPodLink,
		pointPodUnlinked, pointGlobalUnbound, pointUnmapped, pointDeviceUnmapped, pointInProgress, pointResized, pointReconstructed}
}
