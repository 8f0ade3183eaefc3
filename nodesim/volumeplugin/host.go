package volumeplugin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/stats"
)

// Host is what a node gives its plugins. It does not change during a kubelet's life.
type Host struct {
	// Life ends with the kubelet; it bounds lookups that have no context of their own.
	Life      context.Context
	Node      string
	Layout    Layout
	Client    kubernetes.Interface
	Mounter   mount.Interface
	Simulated bool // mounts and devices are simulated
	Lab       *lab.Lab
	Component *lab.Component
	Log       zerolog.Logger
	// CSIDrivers is the cache of CSIDriver objects; lookups wait until it has synced.
	CSIDrivers       storagelisters.CSIDriverLister
	CSIDriversSynced func(context.Context) error
	// NodeLabels returns the node's own labels as the cache has them.
	NodeLabels func() map[string]string
	// Memory is the node's allocatable memory in bytes.
	Memory int64
	// SELinux says which volumes are mounted with a label.
	SELinux SELinuxMode
	// Operations counts what is done; nil counts nothing.
	Operations *stats.Operations
	// Within is a connection to who listens at a driver's socket where that is in this process, else nil. It may be nil itself.
	Within func(endpoint string) grpc.ClientConnInterface
}

// Point reaches a kill point for a volume.
func (h *Host) Point(p lab.Point, volume string) { h.Component.Point(p, volume) }

// Kernel runs a mount, unmount or device operation under the lab's rules.
func (h *Host) Kernel(ctx context.Context, op, volume string, work func() error) error {
	call := lab.Call{Kind: lab.KindKernel, Op: op, Component: "kubelet", Node: h.Node, Volume: volume}
	err := h.Lab.Faults.Do(ctx, call, func(context.Context) error { return work() })
	if f := lab.AsError(err); f != nil {
		if errno, ok := errnoByName(f.Code); ok {
			return fmt.Errorf("%s: %w", f.Text, errno)
		}
	}
	return err
}

// Registry finds the plugin of a volume.
type Registry struct {
	mu      sync.RWMutex
	plugins []Plugin // guarded by mu
	probe   func(known func(name string) bool) []Plugin
}

// NewRegistry returns a registry of these plugins.
func NewRegistry(plugins ...Plugin) *Registry { return &Registry{plugins: plugins} }

// Probe sets where plugins come from that are not known yet: it is asked now, and when
// no plugin is in charge. It is to be called before the registry is used.
func (r *Registry) Probe(f func(known func(name string) bool) []Plugin) {
	r.probe = f
	r.search(func(Plugin) bool { return false })
}

// search finds a plugin, and probes for new ones if there is none.
func (r *Registry) search(fits func(Plugin) bool) Plugin {
	if p := r.known(fits); p != nil || r.probe == nil {
		return p
	}
	added := r.probe(func(name string) bool { return r.known(func(p Plugin) bool { return p.Name() == name }) != nil })
	r.mu.Lock()
	for _, p := range added {
		if !slices.ContainsFunc(r.plugins, func(have Plugin) bool { return have.Name() == p.Name() }) {
			r.plugins = append(r.plugins, p)
		}
	}
	r.mu.Unlock()
	return r.known(fits)
}

func (r *Registry) known(fits func(Plugin) bool) Plugin {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if i := slices.IndexFunc(r.plugins, fits); i >= 0 {
		return r.plugins[i]
	}
	return nil
}

// All returns the plugins.
func (r *Registry) All() []Plugin {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return append([]Plugin(nil), r.plugins...)
}

// ByName returns the plugin of that qualified name.
func (r *Registry) ByName(name string) (Plugin, error) {
	if p := r.search(func(p Plugin) bool { return p.Name() == name }); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no volume plugin matched name: %s", name)
}

// BySpec returns the plugin in charge of a spec.
func (r *Registry) BySpec(s *Spec) (Plugin, error) {
	if p := r.search(func(p Plugin) bool { return p.Supports(s) }); p != nil {
		return p, nil
	}
	if driver := s.flexDriver(); driver != "" {
		return nil, fmt.Errorf("no volume plugin matched: volume %q wants FlexVolume driver %q, which does not answer to init in %s of this node's directory",
			s.Name(), driver, FlexDir+"/"+Escape(driver))
	}
	return nil, fmt.Errorf("no volume plugin matched: volume %q is of type %s, which this node does not have", s.Name(), SourceType(s))
}

// Attachable returns the attacher of a spec, nil if the volume needs no
// attachment, or an error if that is not known.
func (r *Registry) Attachable(s *Spec) (Attacher, error) {
	p, err := r.BySpec(s)
	if err != nil {
		return nil, err
	}
	a, ok := p.(Attacher)
	if !ok {
		return nil, nil
	}
	yes, err := a.Attachable(s)
	if err != nil || !yes {
		return nil, err
	}
	return a, nil
}

// DeviceMountable returns the device mounter of a spec, or nil.
func (r *Registry) DeviceMountable(s *Spec) DeviceMounter {
	p, err := r.BySpec(s)
	if err != nil {
		return nil
	}
	if d, ok := p.(DeviceMounter); ok && d.DeviceMountable(s) {
		return d
	}
	return nil
}

// UniqueNameOf returns the name by which a pod's volume is known on the node:
// shared between pods for volumes with a device, else the pod's own.
func (r *Registry) UniqueNameOf(s *Spec, uid string) (UniqueName, error) {
	p, err := r.BySpec(s)
	if err != nil {
		return "", err
	}
	if d := r.DeviceMountable(s); d != nil {
		name, err := d.VolumeName(s)
		if err != nil {
			return "", err
		}
		return UniqueName(p.Name() + "/" + name), nil
	}
	return UniqueName(p.Name() + "/" + uid + "-" + s.Name()), nil
}

// SourceType is the JSON name of the source in a spec, for messages.
func SourceType(s *Spec) string {
	switch {
	case s == nil:
		return "unknown"
	case s.PV != nil:
		return fieldSet(s.PV.Spec.PersistentVolumeSource)
	case s.Volume != nil:
		return fieldSet(s.Volume.VolumeSource)
	}
	return "unknown"
}
