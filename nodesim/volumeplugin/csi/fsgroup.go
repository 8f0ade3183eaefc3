package csi

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// kubeletOwns tells whether the kubelet, not the driver, applies fsGroup.
func (m *mounter) kubeletOwns(r *request, a volumeplugin.SetUpArgs) bool {
	if a.FSGroup == nil || r.policy == storagev1.NoneFSGroupPolicy || r.Readonly {
		return false
	}
	if r.policy == storagev1.FileFSGroupPolicy {
		return true
	}
	if r.access.fsType == "" {
		return false
	}
	return m.spec.PV == nil || slices.Contains(m.spec.PV.Spec.AccessModes, v1.ReadWriteOnce) ||
		slices.Contains(m.spec.PV.Spec.AccessModes, v1.ReadWriteOncePod)
}
