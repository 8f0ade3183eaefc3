package volumeplugin

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// FlexDir is where a node's FlexVolume drivers lie, below its directory.
const FlexDir = "usr/libexec/kubernetes/kubelet-plugins/volume/exec"

// Layout names the files below a kubelet's root directory.
type Layout struct{ Root string }

// Escape makes a qualified name one path element: kubernetes.io/csi is kubernetes.io~csi.
func Escape(name string) string { return strings.ReplaceAll(name, "/", "~") }

// Unescape is the inverse of Escape.
func Unescape(name string) string { return strings.ReplaceAll(name, "~", "/") }

// Pods is the parent of all pod directories.
func (l Layout) Pods() string { return filepath.Join(l.Root, "pods") }

// Pod is one pod's directory.
func (l Layout) Pod(uid types.UID) string { return filepath.Join(l.Pods(), string(uid)) }

// PodVolumes is the parent of a pod's filesystem volumes, by plugin.
func (l Layout) PodVolumes(uid types.UID) string { return filepath.Join(l.Pod(uid), "volumes") }

// PodVolume is the directory of one filesystem volume of a pod.
func (l Layout) PodVolume(uid types.UID, plugin, inner string) string {
	return filepath.Join(l.PodVolumes(uid), Escape(plugin), Escape(inner))
}

// PodDevices is the parent of a pod's block volumes, by plugin.
func (l Layout) PodDevices(uid types.UID) string { return filepath.Join(l.Pod(uid), "volumeDevices") }

// PodPlugin is where a plugin keeps notes about a pod's volume, outside the volume.
func (l Layout) PodPlugin(uid types.UID, plugin, name string) string {
	return filepath.Join(l.Pod(uid), "plugins", Escape(plugin), Escape(name))
}

// PodSubPaths is the parent of a pod's subPath binds.
func (l Layout) PodSubPaths(uid types.UID) string {
	return filepath.Join(l.Pod(uid), "volume-subpaths")
}

// Plugin is a plugin's own directory: plugins/kubernetes.io/csi.
func (l Layout) Plugin(name string) string { return filepath.Join(l.Root, "plugins", name) }

// VolumeDevices is where a plugin keeps its block volumes.
func (l Layout) VolumeDevices(plugin string) string {
	return filepath.Join(l.Plugin(plugin), "volumeDevices")
}

// Registry is the directory in which drivers announce themselves.
func (l Layout) Registry() string { return filepath.Join(l.Root, "plugins_registry") }
