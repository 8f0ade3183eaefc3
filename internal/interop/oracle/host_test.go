package oracle

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
	"k8s.io/mount-utils"
)

// host is what the kubelet's volume plugins see of the kubelet. It offers what CSI volumes need.
type host struct {
	ctx      context.Context
	root     string
	client   kubernetes.Interface
	mounter  mount.Interface
	factory  informers.SharedInformerFactory
	recorder record.EventRecorder
}

var _ volume.KubeletVolumeHost = &host{}

var errNotPlayed = errors.New("the oracle has none")

func (h *host) GetPluginDir(name string) string { return filepath.Join(h.root, "plugins", name) }
func (h *host) GetVolumeDevicePluginDir(name string) string {
	return filepath.Join(h.root, "plugins", name, "volumeDevices")
}
func (h *host) GetPodsDir() string { return filepath.Join(h.root, "pods") }
func (h *host) GetPodVolumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(h.root, "pods", string(uid), "volumes", plugin, name)
}
func (h *host) GetPodPluginDir(uid types.UID, plugin string) string {
	return filepath.Join(h.root, "pods", string(uid), "plugins", plugin)
}
func (h *host) GetPodVolumeDeviceDir(uid types.UID, plugin string) string {
	return filepath.Join(h.root, "pods", string(uid), "volumeDevices", plugin)
}

func (h *host) GetKubeClient() kubernetes.Interface                 { return h.client }
func (h *host) GetMounter() mount.Interface                         { return h.mounter }
func (h *host) GetHostUtil() hostutil.HostUtils                     { return hostutil.NewHostUtil() }
func (h *host) GetSubpather() subpath.Interface                     { return subpath.New(h.mounter) }
func (h *host) GetEventRecorder() record.EventRecorder              { return h.recorder }
func (h *host) GetNodeName() types.NodeName                         { return nodeName }
func (h *host) GetNodeAllocatable() (v1.ResourceList, error)        { return nil, nil }
func (h *host) SetKubeletError(error)                               {}
func (h *host) GetInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *host) CSIDriverLister() listers.CSIDriverLister {
	return h.factory.Storage().V1().CSIDrivers().Lister()
}
func (h *host) CSIDriversSynced() cache.InformerSynced {
	return h.factory.Storage().V1().CSIDrivers().Informer().HasSynced
}

func (h *host) WaitForCacheSync() error {
	if !cache.WaitForCacheSync(h.ctx.Done(), h.CSIDriversSynced()) {
		return h.ctx.Err()
	}
	return nil
}

func (h *host) GetNodeLabels() (map[string]string, error) {
	n, err := h.client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return n.Labels, nil
}

func (h *host) GetAttachedVolumesFromNodeStatus() (map[v1.UniqueVolumeName]string, error) {
	n, err := h.client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := map[v1.UniqueVolumeName]string{}
	for _, a := range n.Status.VolumesAttached {
		out[a.Name] = a.DevicePath
	}
	return out, nil
}

func (h *host) NewWrapperMounter(string, volume.Spec, *v1.Pod) (volume.Mounter, error) {
	return nil, errNotPlayed
}

func (h *host) NewWrapperUnmounter(string, volume.Spec, types.UID) (volume.Unmounter, error) {
	return nil, errNotPlayed
}

func (h *host) GetSecretFunc() func(namespace, name string) (*v1.Secret, error) {
	return func(namespace, name string) (*v1.Secret, error) {
		return h.client.CoreV1().Secrets(namespace).Get(h.ctx, name, metav1.GetOptions{})
	}
}

func (h *host) GetConfigMapFunc() func(namespace, name string) (*v1.ConfigMap, error) {
	return func(namespace, name string) (*v1.ConfigMap, error) {
		return h.client.CoreV1().ConfigMaps(namespace).Get(h.ctx, name, metav1.GetOptions{})
	}
}

func (h *host) GetServiceAccountTokenFunc() func(namespace, name string, tr *authv1.TokenRequest) (*authv1.TokenRequest, error) {
	return func(namespace, name string, tr *authv1.TokenRequest) (*authv1.TokenRequest, error) {
		return h.client.CoreV1().ServiceAccounts(namespace).CreateToken(h.ctx, name, tr, metav1.CreateOptions{})
	}
}

func (h *host) DeleteServiceAccountTokenFunc() func(types.UID) { return func(types.UID) {} }

func (h *host) GetTrustAnchorsByName(context.Context, string, bool) ([]byte, error) {
	return nil, errNotPlayed
}

func (h *host) GetTrustAnchorsBySigner(context.Context, string, *metav1.LabelSelector, bool) ([]byte, error) {
	return nil, errNotPlayed
}

func (h *host) GetPodCertificateCredentialBundle(context.Context, string, string, string, string, int) ([]byte, []byte, error) {
	return nil, nil, errNotPlayed
}

// blockPaths is the kubelet's handling of the paths of block volumes, with binds on the simulated
// table, and without the loop devices that keep a device open.
type blockPaths struct {
	volumepathhandler.VolumePathHandler
	mounter mount.Interface
}

func (b blockPaths) MapDevice(device, dir, name string, bind bool) error {
	if !bind {
		return b.VolumePathHandler.MapDevice(device, dir, name, false)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if is, err := b.IsDeviceBindMountExist(path); err != nil || is {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o750)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return b.mounter.Mount(device, path, "", []string{"bind"})
}

func (b blockPaths) UnmapDevice(dir, name string, bind bool) error {
	if !bind {
		return b.VolumePathHandler.UnmapDevice(dir, name, false)
	}
	path := filepath.Join(dir, name)
	is, err := b.IsDeviceBindMountExist(path)
	if err != nil {
		return err
	}
	if is {
		if err := b.mounter.Unmount(path); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (b blockPaths) IsDeviceBindMountExist(path string) (bool, error) {
	not, err := b.mounter.IsLikelyNotMountPoint(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return !not, err
}

func (b blockPaths) GetDeviceBindMountRefs(_, dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if is, err := b.IsDeviceBindMountExist(path); err == nil && is {
			refs = append(refs, path)
		}
	}
	return refs, nil
}

func (b blockPaths) AttachFileDevice(path string) (string, error) { return "/dev/loop-of" + path, nil }
func (b blockPaths) DetachFileDevice(string) error                { return nil }
func (b blockPaths) GetLoopDevice(path string) (string, error)    { return "/dev/loop-of" + path, nil }

func (b blockPaths) FindGlobalMapPathUUIDFromPod(dir, _ string, uid types.UID) (string, error) {
	return filepath.Join(dir, string(uid)), nil
}
