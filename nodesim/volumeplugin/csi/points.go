package csi

import "drydock.dev/drydock/internal/lab"

func point(name string) lab.Point { return lab.Point{Component: "kubelet", Name: name} }

var (
	pointStageDir      = point("after making globalmount, before writing its vol_data.json")
	pointStageData     = point("after writing globalmount's vol_data.json, before NodeStage")
	pointStaged        = point("after NodeStage, before the device is recorded as mounted")
	pointPublishDir    = point("after making the pod's volume directory, before writing its vol_data.json")
	pointPublishData   = point("after writing the pod's vol_data.json, before NodePublish")
	pointPublished     = point("after NodePublish, before ownership is applied")
	pointOwned         = point("after ownership is applied, before the volume is recorded as mounted")
	pointUnpublish     = point("before NodeUnpublish")
	pointUnpublished   = point("after NodeUnpublish, before its directory is removed")
	pointUnstage       = point("before NodeUnstage")
	pointUnstaged      = point("after NodeUnstage, before its directory is removed")
	pointRemovedTarget = point("after removing a mount directory, before its vol_data.json")
	pointRemovedData   = point("after removing vol_data.json, before its directory")
	pointRemovedDir    = point("after removing a volume's directory, before it is recorded as gone")
	pointExpand        = point("before NodeExpand")
	pointExpanded      = point("after NodeExpand, before its outcome is written to the claim")
	pointRepaired      = point("after repairing vol_data.json from the API, before the volume is recorded")

	removalPoints = [...]lab.Point{pointRemovedTarget, pointRemovedData, pointRemovedDir}
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point {
	return append([]lab.Point{
		pointStageDir, pointStageData, pointStaged, pointPublishDir, pointPublishData, pointPublished, pointOwned,
		pointUnpublish, pointUnpublished, pointUnstage, pointUnstaged,
		pointRemovedTarget, pointRemovedData, pointRemovedDir, pointExpand, pointExpanded, pointRepaired,
	}, blockPoints()...)
}
