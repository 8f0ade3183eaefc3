package volumemanager

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startVerify begins to confirm an attachment, once the node says that it uses the
// volume and the cached Node says that it is attached. Until then it is not a failure.
func (m *Manager) startVerify(ctx context.Context, w wanted) error {
	if w.Attachable {
		if !w.ReportedInUse {
			return errPrecondition
		}
		if names, known := m.attached(); known && !names[w.Volume] {
			return errPrecondition
		}
	}
	return m.start(ctx, operationSpec{
		key: key{w.Volume, ""}, name: opVerify, plugin: w.Plugin, spec: w.Spec, volume: w.Spec.Name(),
		work: func(ctx context.Context) error { return m.verify(ctx, w) },
	})
}

// claimSize is what the claim of a PV says that it has, which is what the volume was
// expanded to the last time. It is read only while no size is on record.
func (m *Manager) claimSize(ctx context.Context, w wanted) (resource.Quantity, error) {
	if have, _ := m.actual.get(w.Volume); w.Spec.PV == nil || w.Spec.PV.Spec.ClaimRef == nil || !have.Size.IsZero() {
		return resource.Quantity{}, nil
	}
	ref := w.Spec.PV.Spec.ClaimRef
	claim, err := m.host.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return resource.Quantity{}, err
	}
	return *claim.Status.Capacity.Storage(), nil
}

// verify enters the volume into the actual state. The live Node has the last word:
// the cache may show an attachment that is being taken back.
func (m *Manager) verify(ctx context.Context, w wanted) error {
	size, err := m.claimSize(ctx, w)
	if err != nil {
		return stepError("VerifyControllerAttachedVolume failed fetching pvc", w.Spec.Name(), err)
	}
	if !w.Attachable {
		m.actual.markAttached(w.Volume, w.Spec, w.Plugin, "", NotAttachable)
		m.actual.initSize(w.Volume, size)
		return nil
	}
	node, err := m.host.Client.CoreV1().Nodes().Get(ctx, m.host.Node, metav1.GetOptions{})
	if err != nil {
		return stepError("VerifyControllerAttachedVolume failed fetching node from API server", w.Spec.Name(), err)
	}
	for _, a := range node.Status.VolumesAttached {
		if a.Name == w.Volume {
			m.actual.markAttached(w.Volume, w.Spec, w.Plugin, a.DevicePath, Attachable)
			m.actual.initSize(w.Volume, size)
			return nil
		}
	}
	return stepError("VerifyControllerAttachedVolume failed", w.Spec.Name(), errors.New("volume not attached according to node status"))
}
