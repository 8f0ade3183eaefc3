package nodesim

import "drydock.dev/drydock/internal/lab"

func point(name string) lab.Point { return lab.Point{Component: "kubelet", Name: name} }

var (
	pointRegistered   = point("after the Node is registered, before its CSINode is made")
	pointInUse        = point("after volumesInUse is written, before it is taken into account")
	pointPodDirs      = point("after making a pod's directories, before its volumes are brought up")
	pointVolumesUp    = point("after a pod's volumes are up, before its status says Running")
	pointRunning      = point("after a pod's status says Running")
	pointStopped      = point("after a pod's status says that its containers ended, before its volumes are taken down")
	pointVolumesDown  = point("after a pod's volumes are down, before its object is deleted")
	pointPodDeleted   = point("after a pod's object is deleted, before its directory is removed")
	pointPodDirRemove = point("after removing one directory of a gone pod, before the next")
)

func points() []lab.Point {
	return []lab.Point{pointRegistered, pointInUse, pointPodDirs, pointVolumesUp, pointRunning, pointStopped,
		pointVolumesDown, pointPodDeleted, pointPodDirRemove}
}
