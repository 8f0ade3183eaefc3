package fakecloud

import (
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

var (
	pointImageMade    = point("after the volume's image is made, before its record")
	pointRecordGone   = point("after the volume's record is removed, before its image")
	pointRequested    = point("after the action is recorded, before it starts")
	pointEffect       = point("after the action's effect, before it is recorded as completed")
	pointReleased     = point("after a deleted droplet's volume is detached, before its record says so")
	pointSnapshotMade = point("after the snapshot's image is made, before its record")
	pointSnapshotGone = point("after the snapshot's record is removed, before its image")
	pointBooted       = point("after the devices are attached at start, before the actions go on")
)

func point(name string) lab.Point { return lab.Point{Component: "cloud", Name: name} }

// Points lists the places between two effects where the cloud can be killed,
// those in its block devices included.
func Points() []lab.Point {
	return append([]lab.Point{
		pointImageMade, pointRecordGone, pointRequested, pointEffect, pointReleased, pointSnapshotMade, pointSnapshotGone, pointBooted,
	}, blockdev.Points()...)
}
