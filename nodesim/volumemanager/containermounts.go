package volumemanager

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/nodesim/volumeplugin/subpath"
)

// ContainerMount is one volumeMount of a container as a container runtime is told of it.
type ContainerMount struct {
	Volume            string // the pod's name for it
	HostPath          string
	ContainerPath     string
	ReadOnly          bool
	RecursiveReadOnly bool
	Propagation       v1.MountPropagationMode
}

// ContainerMounts makes ready what a container mounts, subPaths included, and lists it
// in the container's order. It is for a pod whose volumes are mounted, and comes
// before each start of the container. Its error says what of the container's spec
// cannot be had; nothing is mounted for it then that would not be taken down with
// the volumes.
func (m *Manager) ContainerMounts(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]ContainerMount, error) {
	var env environment
	var out []ContainerMount
	for i, vm := range c.VolumeMounts {
		w, path, ok := m.mountedAs(pod, vm.Name)
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		is, err := describeMount(vm)
		if err != nil {
			return nil, err
		}
		is.HostPath = path
		sub := vm.SubPath
		if vm.SubPathExpr != "" {
			if env == nil {
				env = m.environmentOf(ctx, pod, c)
			}
			if sub, err = env.expand(vm.SubPathExpr); err != nil {
				return nil, err
			}
		}
		if sub != "" {
			is.HostPath, err = subpath.Prepare(ctx, m.host, subpath.Path{
				Pod: pod.UID, Volume: w.Spec.Name(), Root: path, Container: c.Name, Index: i, SubPath: sub})
			if err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, c.Name, err)
			}
		}
		out = append(out, is)
	}
	return out, nil
}

// mountedAs finds a mounted volume by the pod's name for it, and where it is.
func (m *Manager) mountedAs(pod *v1.Pod, outer string) (wanted, string, bool) {
	for _, w := range m.desired.pod(pod.UID) {
		for _, name := range w.Outer {
			if name != outer {
				continue
			}
			path, ok := m.actual.pathFor(w.Volume, pod.UID)
			return w, path, ok
		}
	}
	return wanted{}, "", false
}

// describeMount takes over what a volumeMount says, and refuses what contradicts itself.
func describeMount(vm v1.VolumeMount) (ContainerMount, error) {
	is := ContainerMount{Volume: vm.Name, ContainerPath: vm.MountPath, ReadOnly: vm.ReadOnly, Propagation: v1.MountPropagationNone}
	if vm.MountPropagation != nil {
		is.Propagation = *vm.MountPropagation
	}
	switch is.Propagation {
	case v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional:
	default:
		return is, fmt.Errorf("invalid MountPropagation mode: %q", is.Propagation)
	}
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return is, nil
	}
	mode := *vm.RecursiveReadOnly
	switch {
	case mode != v1.RecursiveReadOnlyIfPossible && mode != v1.RecursiveReadOnlyEnabled:
		return is, fmt.Errorf("unknown recursive read-only mode %q", mode)
	case !vm.ReadOnly:
		return is, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	case is.Propagation != v1.MountPropagationNone:
		return is, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, is.Propagation)
	}
	is.RecursiveReadOnly = true
	return is, nil
}
