package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// TestSanity runs the whole CSI conformance suite on both kinds of devices. Only
// tests of capabilities that the driver does not declare may be skipped.
func TestSanity(t *testing.T) {
	configs := map[string]*sanity.TestConfig{"sim": sanityConfig(t, true)}
	if private {
		configs["loop"] = sanityConfig(t, false)
	} else {
		t.Run("loop", func(t *testing.T) { needsRoot(t) })
	}
	var contexts []*sanity.TestContext
	for _, kind := range []string{"sim", "loop"} {
		if c := configs[kind]; c != nil {
			ginkgo.Describe(kind, func() { contexts = append(contexts, sanity.GinkgoTest(c)) })
		}
	}
	var skipped []string
	passed := 0
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
		switch r.State {
		case types.SpecStatePassed:
			passed++
		case types.SpecStateSkipped:
			skipped = append(skipped, r.FullText()+": "+r.Failure.Message)
		}
	})
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	reporter.NoColor = true
	ginkgo.RunSpecs(t, "CSI sanity", suite, reporter)
	for _, c := range contexts {
		c.Finalize()
	}
	t.Logf("%d passed, %d skipped", passed, len(skipped))
	for _, s := range skipped {
		if !slices.ContainsFunc(undeclared(), func(u string) bool { return strings.Contains(s, u) }) {
			t.Errorf("skipped: %s", s)
		}
	}
}

// undeclared are the reasons for which a test may be skipped: what the driver does not claim to do.
func undeclared() []string {
	return []string{
		"GroupControllerService not supported", "ControllerModifyVolume not supported", "odify volume not supported", "odify Volume not supported",
		"VolumeHealth not supported", "NodeGetStorageHealth not supported", "Volume Cloning not supported",
		"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported", "ControllerPublishVolume.readonly field not supported",
	}
}

func sanityConfig(t *testing.T, sim bool) *sanity.TestConfig {
	r := newRig(t, sim)
	c := sanity.NewTestConfig()
	c.Address = r.path("n1", "csi.sock")
	c.TargetPath, c.StagingPath = r.path("target"), r.path("staging")
	c.TestVolumeSize = gib
	c.TestVolumeExpandSize = 2 * gib
	c.TestNodeVolumeAttachLimit = true
	c.IdempotentCount = 3
	return &c
}

func growsMounted(fs FSType) bool {
	m, err := newKernelMachine(ops{})
	return err == nil && m.growsMounted(fs)
}
