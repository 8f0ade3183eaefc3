// Package gates lets the upstream sidecars and the API types of k8s.io/kubernetes
// live in one program.
//
// Both register feature gates, some under the same names with different histories,
// in the one registry that k8s.io/apiserver keeps for a process. The sidecars do so
// first and ignore a refusal; k8s.io/kubernetes comes later and panics on one. So
// the sidecars' registration has to be the one that is refused. A registration is
// taken whole or not at all, hence one name that differs is enough: this package
// claims ReleaseLeaderElectionOnExit, which every sidecar has and k8s.io/kubernetes
// has not, before any of them.
//
// "Before" rests on Go's order of initialization: of the packages that are ready,
// the one with the lowest import path is next, and drydock.dev sorts before
// github.com. For that to hold, this package may import nothing but the registry.
//
// The claimed gate is on, for a reason of its own: only then can the sidecars'
// workers be waited for.
package gates

import (
	"errors"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

const release featuregate.Feature = "ReleaseLeaderElectionOnExit"

// claimed is the one effect of an import that this program has; see the package's doc for why.
var claimed = utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
	release: {Default: true, PreRelease: featuregate.Alpha},
})

// sidecars are the gates that the sidecars look at, as they would have registered them.
var sidecars = map[featuregate.Feature]featuregate.FeatureSpec{
	"Topology":                       {Default: true, PreRelease: featuregate.GA},
	"VolumeAttributesClass":          {Default: true, PreRelease: featuregate.GA},
	"CrossNamespaceVolumeDataSource": {Default: false, PreRelease: featuregate.Alpha},
	"MutableCSINodeAllocatableCount": {Default: true, PreRelease: featuregate.GA},
	"AnnotateFsResize":               {Default: true, PreRelease: featuregate.Beta},
}

// Ensure registers what the sidecars need and nobody else has registered. It must
// run before any of their code; running it again does nothing.
var Ensure = sync.OnceValue(func() error {
	if claimed != nil {
		return claimed
	}
	missing := map[featuregate.Feature]featuregate.FeatureSpec{}
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for name, spec := range sidecars {
		if _, ok := known[name]; !ok {
			missing[name] = spec
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.Add(missing); err != nil {
		return err
	}
	if !utilfeature.DefaultFeatureGate.Enabled(release) {
		return errors.New("feature gate ReleaseLeaderElectionOnExit is off: the sidecars' workers could not be waited for")
	}
	return nil
})
