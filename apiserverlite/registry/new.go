package registry

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

// Options of NewWith. The zero value is what New uses.
type Options struct {
	// Clock stamps what a rule of a kind dates (a volume's last change of phase). Nil is the real one.
	Clock clock.PassiveClock
	// TokenVolume makes admission add the projected volume with the service account's token to pods that
	// do not opt out, as upstream does. Off by default: few pods without containers read a token, and each would cost its node a tmpfs.
	TokenVolume bool
	// NoControllers says that nobody makes a service account in each namespace. Pods run as the default one then
	// though it is not there: upstream's way of testing without controllers has service accounts' admission off.
	NoControllers bool
	// VolumeHealth is upstream's feature gate CSIVolumeHealth, off by default: what drivers say of volumes and storage
	// is kept in the status of pods, claims and CSINodes.
	VolumeHealth bool
	// RootCA is the certificate (PEM) by which pods know the API server. If it is set, the first namespaces
	// have it from the start.
	RootCA string
}

// Registry is every kind that is served. It is immutable and safe for concurrent use.
type Registry struct {
	opts      Options
	resources []*Resource
	byGVR     map[schema.GroupVersionResource]*Resource
	admission Admission
	types     func() (managedfields.TypeConverter, error)
	docs      *openapi.Service
}

// New returns the registry with default options.
func New() (*Registry, error) { return NewWith(Options{}) }

// NewWith returns a registry. It takes a few milliseconds; schemas are loaded when first asked for.
func NewWith(o Options) (*Registry, error) {
	// Validation asks a variable of its library. Clusters are set up so, though the API server's flag says otherwise unless
	// it is given: drivers' node halves are privileged.
	capabilities.Setup(true, 0)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for _, add := range []func() error{addSnapshotKinds, addDefinitionKinds} {
		if err := add(); err != nil {
			return nil, fmt.Errorf("new registry: %w", err)
		}
	}
	r := &Registry{opts: o, byGVR: map[schema.GroupVersionResource]*Resource{}}
	for _, part := range []func(Options) []*Resource{coreKinds, appsKinds, autoscalingKinds, batchKinds, eventKinds, nodeKinds, policyKinds, rbacKinds, storageKinds, schedulingKinds, coordinationKinds, definitionKinds, snapshotKinds} {
		r.resources = append(r.resources, part(o)...)
	}
	for _, res := range r.resources {
		if _, twice := r.byGVR[res.GVR]; twice {
			return nil, fmt.Errorf("new registry: %s is there twice", res.GVR)
		}
		r.byGVR[res.GVR] = res
	}
	r.admission = newAdmission(o)
	r.types = sync.OnceValues(loadTypes)
	r.docs = newDocs(r.resources)
	return r, nil
}

// Resources lists every resource in the order of discovery. The slice is shared: do not change it.
func (r *Registry) Resources() []*Resource { return r.resources }

// Lookup finds a resource.
func (r *Registry) Lookup(gvr schema.GroupVersionResource) (*Resource, bool) {
	res, ok := r.byGVR[gvr]
	return res, ok
}

// Admission returns the plugins, in upstream's order. The rules about namespaces are the server's own.
func (r *Registry) Admission() Admission { return r.admission }
