package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

const (
	pvcProtection = "kubernetes.io/pvc-protection"
	gidAnnotation = "pv.beta.kubernetes.io/gid"
)

// addVolume finds out what one of a pod's volumes is and enters it.
func (m *Manager) addVolume(ctx context.Context, pod *v1.Pod, v *v1.Volume, use uses) error {
	spec, claim, err := m.specOf(ctx, pod, v, use)
	if err != nil {
		return err
	}
	var gid string
	var size resource.Quantity
	if spec.PV != nil {
		gid, size = spec.PV.Annotations[gidAnnotation], *spec.PV.Spec.Capacity.Storage()
	}
	plugin, err := m.plugins.BySpec(spec)
	if err != nil {
		return fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=%w", spec.Name(), err)
	}
	attacher, err := m.plugins.Attachable(spec)
	if err != nil {
		return fmt.Errorf("find out whether volume %q needs attachment: %w", spec.Name(), err)
	}
	name, err := m.plugins.UniqueNameOf(spec, string(pod.UID))
	if err != nil {
		return fmt.Errorf("failed to GetUniqueVolumeNameFromSpec for volumeSpec %q using volume plugin %q err=%w", spec.Name(), plugin.Name(), err)
	}
	label, err := m.labelsOf(pod, spec, v.Name)
	if err != nil {
		return err
	}
	if spec.PV != nil && spec.PV.Spec.CSI != nil {
		m.host.Lab.Timeline.Alias(spec.PV.Spec.CSI.VolumeHandle, spec.PV.Name)
	}
	became := m.desired.add(wanted{
		Volume: name, Plugin: plugin.Name(), Attachable: attacher != nil, DeviceMountable: m.plugins.DeviceMountable(spec) != nil,
		Pod: pod, Spec: spec, GID: gid, SizeLimit: sizeLimit(pod, v), Size: size, Label: label.used, Requested: m.clock.Now(), Anew: plugin.RequiresRemount(spec),
	}, v.Name, label)
	if became.admitted {
		m.countLabel(stats.SELinuxAdmitted, spec)
	}
	switch {
	case became.conflict != nil && label.must:
		m.countLabel(stats.SELinuxVolumeError, spec)
		return became.conflict
	case became.conflict != nil:
		m.countLabel(stats.SELinuxVolumeWarning, spec)
	}
	if claim != nil && !spec.ReadOnly {
		m.desired.setSize(name, size)
		m.actual.initSize(name, *claim.Status.Capacity.Storage())
		m.pending.forgive(key{name, ""}, opExpand)
	}
	return nil
}

// sizeLimit bounds an emptyDir: its own limit or the pod's for local storage, the smaller one that is set.
func sizeLimit(pod *v1.Pod, v *v1.Volume) int64 {
	if v.EmptyDir == nil {
		return 0
	}
	var limit int64
	if v.EmptyDir.SizeLimit != nil {
		limit = v.EmptyDir.SizeLimit.Value()
	}
	var sum int64
	for _, c := range pod.Spec.Containers {
		q, ok := c.Resources.Limits[v1.ResourceEphemeralStorage]
		if !ok {
			return limit
		}
		sum += q.Value()
	}
	if sum > 0 && (limit == 0 || sum < limit) {
		return sum
	}
	return limit
}

// specOf resolves a claim to its PV, both read live, with the kubelet's checks in its order.
func (m *Manager) specOf(ctx context.Context, pod *v1.Pod, v *v1.Volume, use uses) (*volumeplugin.Spec, *v1.PersistentVolumeClaim, error) {
	var claim string
	var readOnly bool
	switch {
	case v.PersistentVolumeClaim != nil:
		claim, readOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	case v.Ephemeral != nil:
		claim = ephemeral.VolumeClaimName(pod, v)
	default:
		return &volumeplugin.Spec{Volume: v.DeepCopy()}, nil, nil
	}
	wrap := func(err error) error { return fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, claim, err) }
	pvc, err := m.usableClaim(ctx, pod.Namespace, claim)
	if err != nil {
		return nil, nil, wrap(err)
	}
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, pvc); err != nil {
			return nil, nil, err
		}
	}
	pv, err := m.boundVolume(ctx, pvc)
	if err != nil {
		return nil, nil, wrap(err)
	}
	mode := v1.PersistentVolumeFilesystem
	if pv.Spec.VolumeMode != nil {
		mode = *pv.Spec.VolumeMode
	}
	if use.mounts[v.Name] && mode != v1.PersistentVolumeFilesystem {
		return nil, nil, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", v.Name, mode)
	}
	if use.devices[v.Name] && mode != v1.PersistentVolumeBlock {
		return nil, nil, fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", v.Name, mode)
	}
	return &volumeplugin.Spec{PV: pv, ReadOnly: readOnly}, pvc, nil
}

func (m *Manager) usableClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	pvc, err := m.host.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case pvc.DeletionTimestamp != nil && !slices.Contains(pvc.Finalizers, pvcProtection):
		return nil, errors.New("PVC is being deleted")
	case pvc.Status.Phase != v1.ClaimBound:
		return nil, errors.New("PVC is not bound")
	case pvc.Spec.VolumeName == "":
		return nil, errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return pvc, nil
}

func (m *Manager) boundVolume(ctx context.Context, pvc *v1.PersistentVolumeClaim) (*v1.PersistentVolume, error) {
	name := pvc.Spec.VolumeName
	pv, err := m.host.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("failed to fetch PV %s from API server: %w", name, err)
	case pv.Spec.ClaimRef == nil:
		return nil, fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", name)
	case pv.Spec.ClaimRef.UID != pvc.UID:
		return nil, fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", name, pv.Spec.ClaimRef.UID, pvc.UID)
	}
	return pv, nil
}
