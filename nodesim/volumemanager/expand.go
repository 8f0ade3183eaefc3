package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// notRequired marks a claim whose last expansion left nothing to nodes.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// errNotYet ends an online expansion that the claim does not allow now. It is no
// failure and tells nobody; it only makes the next try wait. The kubelet would look
// again every 100 ms.
var errNotYet = errors.New("the claim does not say that the node may expand the volume")

// expander returns what expands a volume on the node, nil if nothing does.
func (m *Manager) expander(s *volumeplugin.Spec) volumeplugin.Expander {
	if s == nil || s.PV == nil {
		return nil
	}
	p, err := m.plugins.BySpec(s)
	if err != nil {
		return nil
	}
	e, _ := p.(volumeplugin.Expander)
	return e
}

// startExpand begins to expand a volume that is in use.
func (m *Manager) startExpand(ctx context.Context, w wanted, devicePath string, current resource.Quantity) error {
	e := m.expander(w.Spec)
	if e == nil {
		return errPrecondition
	}
	return m.start(ctx, operationSpec{
		key: key{w.Volume, ""}, pod: w.Pod.UID, name: opExpand, plugin: w.Plugin, spec: w.Spec, volume: w.Spec.Name(),
		failed: m.warn(w.Pod, "VolumeResizeFailed"),
		work:   m.ifWanted(w, func(ctx context.Context) error { return m.expandOnline(ctx, w, e, devicePath, current) }),
	})
}

// expandOnline finds the paths, expands, and records the size that was reached.
func (m *Manager) expandOnline(ctx context.Context, w wanted, e volumeplugin.Expander, devicePath string, current resource.Quantity) error {
	name := w.Spec.Name()
	if current.IsZero() || w.Size.IsZero() {
		return stepError("NodeExpandvolume.expansion failed", name, errors.New("current or new size of the volume is not set"))
	}
	x := expansion{m: m, w: w, e: e, args: volumeplugin.ExpandArgs{NewSize: w.Size}}
	var err error
	if w.Spec.Block() {
		var p volumeplugin.BlockMapper
		var mapper volumeplugin.Mapper
		if p, err = m.blockPlugin(w.Plugin); err != nil {
			return stepError("MapVolume.FindMapperPluginBySpec failed", name, err)
		}
		if mapper, err = p.NewMapper(w.Spec, w.Pod); err != nil {
			return stepError("MapVolume.NewBlockVolumeMapper initialization failed", name, err)
		}
		x.args.Path, x.args.StagePath = devicePath, mapper.StagingPath()
	} else {
		mounter, err := e.NewMounter(w.Spec, w.Pod)
		if err != nil {
			return stepError("NodeExpandVolume.NewMounter initialization failed", name, err)
		}
		x.args.Path = mounter.Path()
		if d := m.plugins.DeviceMountable(w.Spec); d != nil {
			if x.args.StagePath, err = d.DeviceMountPath(w.Spec); err != nil {
				return stepError("NodeExpandVolume.GetDeviceMountPath failed", name, err)
			}
		}
	}
	if w.Size.Cmp(current) <= 0 {
		return nil
	}
	done, size, err := x.run(ctx, func(*v1.PersistentVolumeClaim) bool { return false })
	switch {
	case err != nil:
		return stepError("NodeExpandVolume.NodeExpandVolume failed", name, err)
	case !done:
		return errNotYet
	}
	m.host.Point(pointResized, name)
	if err := m.actual.markResized(w.Volume, size); err != nil {
		return stepError("NodeExpandVolume.MarkVolumeAsResized failed", name, err)
	}
	return nil
}

// expandDuringMount expands a volume whose claim lags behind its PV. The size on
// record stays: the online pass that follows finds the claim up to date and enters it.
func (m *Manager) expandDuringMount(ctx context.Context, w wanted, args volumeplugin.ExpandArgs) error {
	e := m.expander(w.Spec)
	if e == nil {
		return nil
	}
	args.NewSize = *w.Spec.PV.Spec.Capacity.Storage()
	x := expansion{m: m, w: w, e: e, args: args}
	_, _, err := x.run(ctx, func(pvc *v1.PersistentVolumeClaim) bool { return pvc.Status.Capacity.Storage().Cmp(args.NewSize) >= 0 })
	return err
}

// expansion is one try to expand a volume on the node.
type expansion struct {
	m     *Manager
	w     wanted
	e     volumeplugin.Expander
	args  volumeplugin.ExpandArgs
	claim *v1.PersistentVolumeClaim
}

// run reads the claim and does what its status allows. Done says that nothing is left
// to do on this node, and size is what the volume has then.
func (x *expansion) run(ctx context.Context, needless func(*v1.PersistentVolumeClaim) bool) (done bool, size resource.Quantity, err error) {
	ref := x.w.Spec.PV.Spec.ClaimRef
	if ref == nil {
		return true, x.args.NewSize, nil
	}
	x.claim, err = x.m.host.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return false, size, fmt.Errorf("mountVolume.NodeExpandVolume get PVC failed : %w", err)
	}
	x.args.OldSize = *x.claim.Status.Capacity.Storage()
	if needless(x.claim) {
		return true, x.args.NewSize, nil
	}
	if x.w.Spec.ReadOnly {
		x.event(v1.EventTypeWarning, "FileSystemResizeFailed", "MountVolume.NodeExpandVolume failed", "requested read-only file system")
		return true, *x.claim.Status.Capacity.Storage(), nil
	}
	if x.claim.Status.AllocatedResources == nil && x.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] == "" {
		done, err = x.legacy(ctx)
		return done, x.args.NewSize, err
	}
	x.args.NewSize = x.claim.Status.AllocatedResources[v1.ResourceStorage]
	done, err = x.recoverable(ctx)
	return done, x.args.NewSize, err
}

// allowed is the check before an expansion. Already: the claim has the size, so another node has done it.
func (x *expansion) allowed() (may, already bool) {
	s := x.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	already = s == "" && x.claim.Status.Capacity.Storage().Cmp(x.args.NewSize) >= 0
	if already && slices.Contains(x.claim.Spec.AccessModes, v1.ReadWriteMany) && !metav1.HasAnnotation(x.claim.ObjectMeta, notRequired) {
		return true, true // a shared filesystem is expanded on each node
	}
	return s == v1.PersistentVolumeClaimNodeResizePending || s == v1.PersistentVolumeClaimNodeResizeInProgress, already
}

// recoverable expands by the status that a resizer keeps on the claim.
func (x *expansion) recoverable(ctx context.Context) (done bool, err error) {
	may, already := x.allowed()
	if !may {
		return already, nil
	}
	// Somebody has asked for another size since, and this one has failed before: the controller shall decide anew.
	givenUp := x.claim.Spec.Resources.Requests.Storage().Cmp(x.args.NewSize) != 0 && x.m.actual.expansionFailed(x.w.Volume)
	if !already {
		if x.claim, err = x.m.patchClaim(ctx, x.claim, inProgress); err != nil {
			return false, err
		}
		x.m.host.Point(pointInProgress, x.w.Spec.Name())
	}
	err = x.e.NodeExpand(ctx, x.w.Spec, x.args)
	switch {
	case err == nil:
	case already && errors.Is(err, volumeplugin.ErrUnsupported):
		return true, nil
	default:
		return false, x.failed(ctx, err, givenUp)
	}
	x.event(v1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded", x.w.Pod.Spec.NodeName)
	if already {
		return true, nil
	}
	if _, err := x.m.patchClaim(ctx, x.claim, finished(x.args.NewSize)); err != nil {
		return true, fmt.Errorf("mountVolume.NodeExpandVolume update pvc status failed: %w", err)
	}
	return true, nil
}

// failed writes a failure to the claim. A volume that the driver will not expand while
// it is in use is no error: it is mounted as it is, and not tried again on this node.
func (x *expansion) failed(ctx context.Context, err error, givenUp bool) error {
	if class := volumeplugin.ClassOf(err); class == volumeplugin.Final {
		x.m.actual.markExpansionFailed(x.w.Volume)
		if _, e := x.m.patchClaim(ctx, x.claim, failedWith(err, givenUp || errors.Is(err, volumeplugin.ErrInfeasible))); e != nil {
			x.m.log.Error().Err(e).Str("volume", x.w.Spec.Name()).Msg("write to the claim that its expansion failed")
		}
	}
	if !errors.Is(err, volumeplugin.ErrInUse) {
		return err
	}
	x.m.log.Error().Err(err).Str("volume", x.w.Spec.Name()).Msg("the volume is not expanded while it is in use")
	x.m.logMark(x.m.actual.markExpansionInUse(x.w.Volume))
	return nil
}

// legacy expands for a resizer that keeps no status of it on the claim.
func (x *expansion) legacy(ctx context.Context) (done bool, err error) {
	err = x.e.NodeExpand(ctx, x.w.Spec, x.args)
	switch {
	case errors.Is(err, volumeplugin.ErrUnsupported):
		return true, nil
	case errors.Is(err, volumeplugin.ErrInUse):
		x.m.logMark(x.m.actual.markExpansionInUse(x.w.Volume))
		return true, nil
	case err != nil:
		return false, err
	}
	x.event(v1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded", x.w.Pod.Spec.NodeName)
	if x.claim.Status.Capacity.Storage().Cmp(x.args.NewSize) >= 0 {
		return true, nil
	}
	if _, err := x.m.patchClaim(ctx, x.claim, finished(x.args.NewSize)); err != nil {
		return false, fmt.Errorf("mountVolume.NodeExpandVolume update PVC status failed : %w", err)
	}
	return true, nil
}

// event is put on the pod and on the claim.
func (x *expansion) event(kind, reason, what, why string) {
	text := fmt.Sprintf("%s for volume %q %s", what, x.w.Spec.Name(), why)
	x.m.recorder.Event(x.w.Pod, kind, reason, text)
	x.m.recorder.Event(x.claim, kind, reason, text)
}
