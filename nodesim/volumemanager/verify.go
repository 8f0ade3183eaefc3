package volumemanager

import (
	"context"
	"errors"

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
		key: key{w.Volume, ""}, name: opVerify, volume: w.Spec.Name(),
		work: func(ctx context.Context) error { return m.verify(ctx, w) },
	})
}

// verify enters the volume into the actual state. The live Node has the last word:
// the cache may show an attachment that is being taken back.
func (m *Manager) verify(ctx context.Context, w wanted) error {
	if !w.Attachable {
		m.actual.markAttached(w.Volume, w.Spec, w.Plugin, "", NotAttachable)
		return nil
	}
	node, err := m.host.Client.CoreV1().Nodes().Get(ctx, m.host.Node, metav1.GetOptions{})
	if err != nil {
		return stepError("VerifyControllerAttachedVolume failed fetching node from API server", w.Spec.Name(), err)
	}
	for _, a := range node.Status.VolumesAttached {
		if a.Name == w.Volume {
			m.actual.markAttached(w.Volume, w.Spec, w.Plugin, a.DevicePath, Attachable)
			return nil
		}
	}
	return stepError("VerifyControllerAttachedVolume failed", w.Spec.Name(), errors.New("volume not attached according to node status"))
}
