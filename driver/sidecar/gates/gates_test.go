package gates_test

import (
	"testing"

	_ "github.com/kubernetes-csi/external-attacher/v4/pkg/controller"
	_ "github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"
	_ "github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/kubernetes/pkg/features"

	"drydock.dev/drydock/driver/sidecar/gates"
)

// That this test starts at all is most of its point: a clash panics before main.
func TestSidecarsAndKubernetesShareTheRegistry(t *testing.T) {
	for range 2 {
		if err := gates.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	for gate, on := range map[string]bool{
		"ReleaseLeaderElectionOnExit": true, "Topology": true, "VolumeAttributesClass": true,
		"MutableCSINodeAllocatableCount": true, "AnnotateFsResize": true, "CrossNamespaceVolumeDataSource": false,
	} {
		if got := utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(gate)); got != on {
			t.Errorf("%s is %v, want %v", gate, got, on)
		}
	}
}
