package csi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// FindDevices lists the volumes that have a data file in the plugin's own
// directories. Directories that a crash left without one, and in which nothing is
// mounted, are removed.
func (p *Plugin) FindDevices() ([]volumeplugin.FoundDevice, error) {
	staged, err1 := p.findStaged()
	mapped, err2 := p.findMapped()
	return append(staged, mapped...), errors.Join(err1, err2)
}

// findStaged looks through plugins/kubernetes.io/csi/<driver>/<hash of the handle>.
func (p *Plugin) findStaged() ([]volumeplugin.FoundDevice, error) {
	var out []volumeplugin.FoundDevice
	var errs []error
	root := p.host.Layout.Plugin(PluginName)
	drivers, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, d := range drivers {
		if d.Name() == filepath.Base(p.host.Layout.VolumeDevices(PluginName)) {
			continue
		}
		volumes, err := os.ReadDir(filepath.Join(root, d.Name()))
		errs = append(errs, err)
		for _, v := range volumes {
			dir := filepath.Join(root, d.Name(), v.Name())
			data, err := loadData(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				errs = append(errs, removeMountDir(p.host, filepath.Join(dir, globalMount), v.Name()))
			case err != nil:
				errs = append(errs, err)
			default:
				out = append(out, volumeplugin.FoundDevice{Spec: skeleton(data, data[keyHandle], v1.PersistentVolumeFilesystem)})
			}
		}
	}
	return out, errors.Join(errs...)
}

func skeleton(data map[string]string, name string, mode v1.PersistentVolumeMode) *volumeplugin.Spec {
	return &volumeplugin.Spec{Label: data[keySELinux], PV: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{VolumeMode: &mode, PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: data[keyDriver], VolumeHandle: data[keyHandle]}}}}}
}

// findMapped lists block volumes, with the pods of which a bind or a publish target is left.
func (p *Plugin) findMapped() ([]volumeplugin.FoundDevice, error) {
	root := p.host.Layout.VolumeDevices(PluginName)
	dirs, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []volumeplugin.FoundDevice
	var errs []error
	for _, d := range dirs {
		if d.Name() == "staging" || d.Name() == "publish" {
			continue
		}
		b := &block{p: p, inner: volumeplugin.Unescape(d.Name())}
		data, err := loadData(b.data())
		if errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, b.removeDirs())
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f := volumeplugin.FoundDevice{Spec: skeleton(data, b.inner, v1.PersistentVolumeBlock)}
		for _, dir := range []string{b.GlobalMapPath(), b.publishDir()} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if uid := types.UID(e.Name()); !slices.Contains(f.Pods, uid) {
					f.Pods = append(f.Pods, uid)
				}
			}
		}
		out = append(out, f)
	}
	return out, errors.Join(errs...)
}
