package driver

import "drydock.dev/drydock/internal/lab"

// The driver's kill points, each between two effects that others can see.
var (
	pointCreated     = point("after the volume is created in the cloud, before CreateVolume answers")
	pointAttachAsked = point("after attach is asked of the cloud, before it is done")
	pointAttached    = point("after attach is done, before ControllerPublishVolume answers")
	pointDetachAsked = point("after detach is asked of the cloud, before it is done")
	pointDetached    = point("after detach is done, before ControllerUnpublishVolume answers")
	pointDeleted     = point("after the volume is deleted in the cloud, before DeleteVolume answers")
	pointSnapped     = point("after the snapshot is made in the cloud, before CreateSnapshot answers")
	pointResizeAsked = point("after a resize is asked of the cloud, before it is done")
	pointProven      = point("after the device is proven blank, before the format mark is written")
	pointMarked      = point("after the format mark is written, before mkfs")
	pointFormatted   = point("after mkfs, before the format mark is erased")
	pointUnmarked    = point("after the format mark is erased, before the device is mounted")
	pointStaged      = point("after the device is mounted, before NodeStageVolume answers")
	pointTargetMade  = point("after the target is made, before it is bound")
	pointPublished   = point("after the target is bound, before NodePublishVolume answers")
	pointUnbound     = point("after the target is unmounted, before it is removed")
	pointUnpublished = point("after the target is removed, before NodeUnpublishVolume answers")
	pointUnstaged    = point("after the staging path is unmounted, before NodeUnstageVolume answers")
)

func point(name string) lab.Point { return lab.Point{Component: componentKind, Name: name} }

// Points lists where a driver can be killed.
func Points() []lab.Point {
	return []lab.Point{
		pointCreated, pointAttachAsked, pointAttached, pointDetachAsked, pointDetached, pointDeleted, pointSnapped, pointResizeAsked,
		pointProven, pointMarked, pointFormatted, pointUnmarked, pointStaged, pointTargetMade, pointPublished,
		pointUnbound, pointUnpublished, pointUnstaged,
	}
}
