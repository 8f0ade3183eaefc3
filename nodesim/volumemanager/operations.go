package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// The operations' names, as in the kubelet's metrics.
const (
	opVerify        = "verify_controller_attached_volume"
	opMount         = "volume_mount"
	opUnmount       = "volume_unmount"
	opUnmountDevice = "unmount_device"
	opMap           = "map_volume"
	opUnmap         = "unmap_volume"
	opUnmapDevice   = "unmap_device"
	opExpand        = "volume_fs_resize"
)

// operationSpec is one operation to start.
type operationSpec struct {
	key    key
	pod    types.UID // for which it works; empty for operations on a device
	name   string
	plugin string
	spec   *volumeplugin.Spec // nil where it is not known
	volume string             // inner name, for the record
	work   func(context.Context) error
	// failed records the event of a failure; nil for operations that tell nobody.
	failed func(error)
}

// start claims the key and runs the operation in a goroutine of its own. A killed
// kubelet's operation ends at its next point and leaves no outcome behind.
func (m *Manager) start(ctx context.Context, o operationSpec) error {
	if err := m.pending.start(o.key, o.pod, o.name); err != nil {
		return err
	}
	m.ops.Add(1)
	began := m.host.Lab.Clock.Now()
	go func() {
		defer m.ops.Done()
		ctx, span := m.host.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: o.name, Volume: o.volume, Component: "kubelet", Node: m.host.Node})
		err, over := errors.New("killed"), false
		defer func() {
			if r := recover(); r != nil {
				m.log.Error().Interface("panic", r).Bytes("stack", debug.Stack()).Str("operation", o.name).Msg("operation panicked")
				err, over = fmt.Errorf("recovered from panic: %v", r), true
			}
			span.End("", err)
			if over {
				m.count(o, began, err)
				m.pending.end(o.key, err)
			}
		}()
		if err = o.work(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errNotYet) {
			m.log.Warn().Err(err).Str("operation", o.name).Str("volume", string(o.key.volume)).Msg("operation failed")
			if o.failed != nil {
				o.failed(err)
			}
		}
		over = true
	}()
	return nil
}

// stepError is the text of an event: what was tried, on which volume, and why it did not work.
func stepError(step, volume string, err error) error {
	return fmt.Errorf("%s for volume %q : %w", step, volume, err)
}

// warn records a failure event on a pod.
func (m *Manager) warn(pod *v1.Pod, reason string) func(error) {
	return func(err error) { m.recorder.Event(pod, v1.EventTypeWarning, reason, err.Error()) }
}

// podKey is the key of an operation that brings a volume to a pod: one that shares a
// device excludes everything on the volume.
func podKey(w wanted) key {
	if !w.Attachable && !w.DeviceMountable {
		return key{w.Volume, w.Pod.UID}
	}
	return key{w.Volume, ""}
}

// ifWanted does the work unless the pod was let go before the operation was claimed.
// Together with removePods, which lets no pod go while an operation runs for it, this
// makes sure that nothing is mounted for a pod that has been waited for.
func (m *Manager) ifWanted(w wanted, work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !m.desired.wants(w.Pod.UID, w.Volume, w.Label) {
			return nil
		}
		return work(ctx)
	}
}

func (m *Manager) startMount(ctx context.Context, w wanted, devicePath string, remount bool) error {
	if w.Spec.Block() {
		return m.startMap(ctx, w, devicePath)
	}
	return m.start(ctx, operationSpec{
		key: podKey(w), pod: w.Pod.UID, name: opMount, plugin: w.Plugin, spec: w.Spec, volume: w.Spec.Name(), failed: m.warn(w.Pod, "FailedMount"),
		work: m.ifWanted(w, func(ctx context.Context) error { return m.mount(ctx, w, devicePath, remount) }),
	})
}

func (m *Manager) startUnmount(ctx context.Context, v mountedVolume) error {
	if v.Spec.Block() {
		return m.startUnmap(ctx, v)
	}
	p, err := m.plugins.ByName(v.Plugin)
	if err != nil {
		return stepError("UnmountVolume.FindPluginByName failed", string(v.Volume), err)
	}
	u, err := p.NewUnmounter(v.Inner, v.UID)
	if err != nil {
		return stepError("UnmountVolume.NewUnmounter failed", string(v.Volume), err)
	}
	return m.start(ctx, operationSpec{
		key: key{v.Volume, v.UID}, pod: v.UID, name: opUnmount, plugin: v.Plugin, spec: v.Spec, volume: v.Inner,
		work: func(ctx context.Context) error { return m.unmount(ctx, v, u) },
	})
}

func (m *Manager) startUnmountDevice(ctx context.Context, v have) error {
	if v.Spec.Block() {
		return m.startUnmapDevice(ctx, v)
	}
	p, err := m.plugins.ByName(v.Plugin)
	if err != nil {
		return stepError("UnmountDevice.FindDeviceMountablePluginByName failed", v.Spec.Name(), err)
	}
	d, ok := p.(volumeplugin.DeviceMounter)
	if !ok {
		return stepError("UnmountDevice.FindDeviceMountablePluginByName failed", v.Spec.Name(), fmt.Errorf("plugin %s has no devices", v.Plugin))
	}
	return m.start(ctx, operationSpec{
		key: key{v.Volume, ""}, name: opUnmountDevice, plugin: v.Plugin, spec: v.Spec, volume: v.Spec.Name(),
		work: func(ctx context.Context) error { return m.unmountDevice(ctx, v, d) },
	})
}
