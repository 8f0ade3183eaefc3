package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// Repair rewrites a damaged or missing data file from the PV that the directory is
// named for, so that the volume can be taken down by its driver. Without such a PV
// (it is gone, or the volume was an inline one) it takes the mount down itself.
func (p *Plugin) Repair(ctx context.Context, uid types.UID, inner, path string, isBlock bool) (*volumeplugin.Spec, error) {
	pv, err := p.host.Client.CoreV1().PersistentVolumes().Get(ctx, inner, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && pv.Spec.CSI == nil:
		return nil, p.salvage(ctx, inner, path, isBlock)
	case err != nil:
		return nil, fmt.Errorf("%s: repair volume data of %s: %w", PluginName, inner, err)
	}
	src := pv.Spec.CSI
	if isBlock {
		block := v1.PersistentVolumeBlock
		pv.Spec.VolumeMode = &block
		spec := &volumeplugin.Spec{PV: pv}
		_, err := p.NewMapper(spec, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
		return spec, err
	}
	data := map[string]string{
		keySpecName: pv.Name, keyHandle: src.VolumeHandle, keyDriver: src.Driver, keyNode: p.host.Node, keyMode: modePersist,
		keyAttach: AttachmentName(src.VolumeHandle, src.Driver, p.host.Node),
	}
	if err := saveData(path, data); err != nil {
		return nil, err
	}
	p.host.Point(pointRepaired, src.VolumeHandle)
	return p.Reconstruct(uid, inner, path)
}

// salvage unmounts what is mounted for the pod and removes the files that are ours.
func (p *Plugin) salvage(ctx context.Context, inner, path string, isBlock bool) error {
	if isBlock {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: clean up after volume %s: %w", PluginName, inner, err)
		}
		return nil
	}
	target := filepath.Join(path, mountDirName)
	is, err := mounted(p.host, target)
	if err != nil {
		return err
	}
	if is {
		if err := p.host.Kernel(ctx, "unmount", inner, func() error { return p.host.Mounter.Unmount(target) }); err != nil {
			return fmt.Errorf("%s: unmount %s, whose data file is damaged: %w", PluginName, target, err)
		}
	}
	return removeMountDir(p.host, target, inner)
}
