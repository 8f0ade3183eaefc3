// Package nodesim is a simulated node: a kubelet's volume half, without containers.
//
// A Node registers itself, keeps its lease and status, takes the pods that are
// assigned to it, makes drivers known that announce themselves in its
// plugins_registry, and brings the pods' volumes up and down. A pod is Running when
// its volumes are up and its start delay has passed; a deleted pod's object goes
// after its volumes.
//
// It speaks to the rest of the world by public protocols only: the Kubernetes API,
// CSI and the plugin registration protocol over unix sockets, and the kernel's mounts
// (or a simulated mount table).
//
// Crash-only. Everything that outlives a kubelet is in files, mounts and API objects.
// Run is one life: it returns when every goroutine it started has ended. New and Run
// again on the same root is a restart, and recovery is what every start does.
package nodesim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/pluginmanager"
	"drydock.dev/drydock/nodesim/volumemanager"
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/content"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
	"drydock.dev/drydock/nodesim/volumeplugin/emptydir"
	"drydock.dev/drydock/nodesim/volumeplugin/flexvolume"
	"drydock.dev/drydock/nodesim/volumeplugin/hostpath"
	"drydock.dev/drydock/nodesim/volumeplugin/subpath"
)

// Config of a Node.
type Config struct {
	// Name is the Node object's name.
	Name string
	// Root is the node's directory. The kubelet's own is Root/var/lib/kubelet.
	Root string
	// RESTConfig reaches the Kubernetes API.
	RESTConfig *rest.Config
	Lab        *lab.Lab
	// Component is this life of the kubelet; nil in tests that kill nothing.
	Component *lab.Component
	// Mounter works on the kernel's mounts or on a simulated table.
	Mounter mount.Interface
	// Simulated says that it is the latter.
	Simulated bool
	// SELinux says which volumes are mounted with a label; SELinuxOff looks whether the machine has SELinux.
	SELinux volumeplugin.SELinuxMode
	// VolumeHealth is the feature gate CSIVolumeHealth: drivers are asked each minute how volumes and storage are.
	VolumeHealth bool
	// Labels are added to the Node object.
	Labels map[string]string
	// Boot tells one boot of the machine from another within this process.
	Boot string
	// Tap puts the lab's proxy before each driver's socket but those in Tapped, which are proxies already.
	Tap    bool
	Tapped []string
	// Within is a connection to the proxy at a socket where that is in this process, and nil elsewhere. It may be nil itself.
	Within func(endpoint string) grpc.ClientConnInterface
	Log    zerolog.Logger
}

// Node is one life of a node's kubelet.
type Node struct {
	c      Config
	layout volumeplugin.Layout
	client kubernetes.Interface
	hangUp func() // closes idle connections to the API

	mu   sync.Mutex
	life *life // guarded by mu: set while Run runs
}

// New prepares a kubelet. It touches nothing outside memory.
func New(c Config) (*Node, error) {
	if c.RESTConfig == nil {
		return nil, fmt.Errorf("make node %s: no way to the Kubernetes API was given", c.Name)
	}
	cfg := rest.CopyConfig(c.RESTConfig)
	if cfg.ContentType == "" {
		cfg.ContentType = "application/vnd.kubernetes.protobuf"
		cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", c.Name, err)
	}
	client, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", c.Name, err)
	}
	n, err := newNode(c, client)
	if err != nil {
		return nil, err
	}
	n.hangUp = hc.CloseIdleConnections
	return n, nil
}

func newNode(c Config, client kubernetes.Interface) (*Node, error) {
	switch {
	case c.Name == "":
		return nil, errors.New("make node: it has no name")
	case c.Lab == nil, c.Mounter == nil:
		return nil, fmt.Errorf("make node %s: a lab and a mounter are needed", c.Name)
	}
	root, err := filepath.Abs(KubeletRoot(c.Root))
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", c.Name, err)
	}
	return &Node{c: c, layout: volumeplugin.Layout{Root: root}, client: client, hangUp: func() {}}, nil
}

// KubeletRoot is the kubelet's directory on a node that lies at root.
func KubeletRoot(root string) string { return filepath.Join(root, "var", "lib", "kubelet") }

// Run lives until ctx ends or the component is killed. It returns an error only if it could not begin to live.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n.c.Component != nil {
		stop := context.AfterFunc(n.c.Component.Context(), cancel)
		defer stop()
	}
	for dir, mode := range map[string]os.FileMode{
		n.layout.Pods(): 0o750, n.layout.Plugin(""): 0o750, n.layout.Registry(): 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("start kubelet of node %s: %w", n.c.Name, err)
		}
	}
	l, err := newLife(ctx, n)
	if err != nil {
		return fmt.Errorf("start kubelet of node %s: %w", n.c.Name, err)
	}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	l.run(ctx)
	n.hangUp()
	n.mu.Lock()
	n.life = nil
	n.mu.Unlock()
	return nil
}

// selinux is what a kubelet does where the machine has SELinux, unless it was told otherwise.
func (c Config) selinux() volumeplugin.SELinuxMode {
	if c.SELinux == volumeplugin.SELinuxOff && !c.Simulated {
		if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
			return volumeplugin.SELinuxAll
		}
	}
	return c.SELinux
}

// Name is the Node object's name.
func (n *Node) Name() string { return n.c.Name }

// Root is the kubelet's directory.
func (n *Node) Root() string { return n.layout.Root }

// State lists the volumes as the volume manager sees them; nil while no kubelet runs.
func (n *Node) State() []volumemanager.VolumeState {
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.volumes.State()
}

// PodVolumePath is where a pod finds one of its volumes on this node.
func (n *Node) PodVolumePath(pod *v1.Pod, volume, inner string) (string, error) {
	return PodVolumePath(n.c.Root, pod, volume, inner)
}

// PodVolumePath is where a pod finds the volume that it calls by this name, on the node
// that lies at root. Inner is the PV's name for a volume that comes from a claim; it is
// not needed for others.
func PodVolumePath(root string, pod *v1.Pod, volume, inner string) (string, error) {
	l := volumeplugin.Layout{Root: KubeletRoot(root)}
	for _, v := range pod.Spec.Volumes {
		if v.Name != volume {
			continue
		}
		switch {
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			if inner == "" {
				return "", fmt.Errorf("path of volume %s of pod %s/%s: the name of its PV is needed", volume, pod.Namespace, pod.Name)
			}
			if usesBlock(pod, volume) {
				return filepath.Join(l.PodDevices(pod.UID), volumeplugin.Escape(csi.PluginName), inner), nil
			}
			return filepath.Join(l.PodVolume(pod.UID, csi.PluginName, inner), "mount"), nil
		case v.CSI != nil:
			return filepath.Join(l.PodVolume(pod.UID, csi.PluginName, volume), "mount"), nil
		case v.HostPath != nil:
			return hostpath.Resolve(root, v.HostPath.Path), nil
		}
		if p := pluginOf(&v); p != "" {
			return l.PodVolume(pod.UID, p, volume), nil
		}
		return "", fmt.Errorf("path of volume %s of pod %s/%s: this node has no volumes of type %s",
			volume, pod.Namespace, pod.Name, volumeplugin.SourceType(&volumeplugin.Spec{Volume: &v}))
	}
	return "", fmt.Errorf("pod %s/%s has no volume %s", pod.Namespace, pod.Name, volume)
}

// pluginOf is the qualified name of the plugin of a pod's own volume, or empty.
func pluginOf(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case v.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case v.Secret != nil:
		return "kubernetes.io/secret"
	case v.Projected != nil:
		return "kubernetes.io/projected"
	case v.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case v.FlexVolume != nil:
		return v.FlexVolume.Driver
	}
	return ""
}

func usesBlock(pod *v1.Pod, volume string) bool {
	for _, c := range append(append([]v1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...) {
		for _, d := range c.VolumeDevices {
			if d.Name == volume {
				return true
			}
		}
	}
	return false
}

// Expected is what a healthy node has on disk and mounted, by what the kubelet knows.
type Expected struct {
	// Mounts are the paths at which a driver has mounted something, or may have.
	Mounts []string
	// Pods are the pods whose directories may be there.
	Pods []types.UID
}

// Expected lists it; the zero value while no kubelet runs.
func (n *Node) Expected() Expected {
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	var e Expected
	if l == nil {
		return e
	}
	for _, v := range l.volumes.State() {
		if v.Plugin != csi.PluginName {
			continue
		}
		if v.MountPath != "" && v.Device != volumemanager.DeviceNotMounted {
			e.Mounts = append(e.Mounts, v.MountPath)
		}
		for _, p := range v.Pods {
			if p.Path != "" && p.State != volumemanager.NotMounted {
				e.Mounts = append(e.Mounts, p.Path)
			}
		}
	}
	e.Pods = l.pods.known()
	return e
}

// Points lists the places where a kubelet can be killed.
func Points() []lab.Point {
	return slices.Concat(points(), volumemanager.Points(), csi.Points(), subpath.Points(), flexvolume.Points(), emptydir.Points(), content.Points(), pluginmanager.Points())
}
