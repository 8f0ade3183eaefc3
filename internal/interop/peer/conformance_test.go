package peer

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asked are the tests of internal/conformance that need an API server alone. The others wait for controllers, kubelets
// and drivers, or ask for what a server as a whole has.
var asked = []string{
	"TestAggregatedDiscoveryIsAskedFor", "TestApplyConflictsUnlessForced", "TestApplyCreatesWhatIsNotThere", "TestApplyRemovesWhatItsManagerGaveUp",
	"TestApplyToCustomObjects", "TestApplyToSubresources", "TestAttachmentStatus", "TestCustomObjectsAreDefaulted",
	"TestCustomObjectsAreValidatedAndPruned", "TestCustomObjectsAreWatched", "TestCustomSelectableFields", "TestCustomSubresources",
	"TestCustomVersions", "TestDefinitionLife", "TestEventsOfBothGroupsAreTheSame", "TestFieldsOfCustomObjectsAreValidated",
	"TestFieldsOfCustomObjectsWithoutSchema", "TestFieldsOfTypedObjectsAreValidated", "TestHealth", "TestImmutableConfigAndSecrets",
	"TestInformersSyncByOneWatch", "TestKeysOfConfigAndSecrets", "TestLeaseIsHeldAndPassedOn", "TestLifecycles", "TestLimitRangeFillsInAndBounds",
	"TestListsInChunks", "TestNamespaceIsChanged", "TestPodIsResized", "TestPodQualityOfService", "TestPodStatusIsPatched",
	"TestPodsRunAsAnAccountThatIsThere", "TestRequestTimeouts", "TestReviewsOfAccess", "TestRulesLetStayWhatWasThere", "TestRulesMustCompileAndBeCheap",
	"TestRulesOfCustomObjects", "TestRuntimeClassesArePodsHandlers", "TestTableOfAReview", "TestTokenOfAServiceAccount",
	"TestWatchBeginsWithWhatIsThere", "TestWatchEndsAfterItsTimeout", "TestWatchFromAResourceVersion", "TestWatchGoesOnWhereAnotherEnded",
	"TestWatchTellsOfLeavingAndEnteringASelection", "TestWatchersSeeWhatTheySelect", "TestWatchesAgreeOnTheOrder",
}

// unasked are the lifecycles of kinds that controllers have a part in, or that this server does not have.
var unasked = []string{
	"TestLifecycles/.*snapshot.*", "TestLifecycles/autoscaling/v2", "TestLifecycles/batch/v1/jobs", "TestLifecycles/storage.k8s.io/v1/volumeattributesclasses",
	"TestLifecycles/v1/(pods|persistentvolumes|persistentvolumeclaims|replicationcontrollers)$",
}

// TestConformanceIsUpstreams has upstream's server pass the tests of ours: what they ask for is what upstream gives.
func TestConformanceIsUpstreams(t *testing.T) {
	p := Start(t, Options{Kinds: true})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "osusergo netgo sqlite_omit_load_extension grpcnotrace", "-count=1", "-v",
		"-run", "^("+strings.Join(asked, "|")+")$", "-skip", strings.Join(unasked, "|"), "./internal/conformance")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "DRYDOCK_CONFORMANCE_OF="+p.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count("\n"+string(out), "\n--- PASS: "); n != len(asked) {
		t.Errorf("%d tests ran of %d", n, len(asked))
	}
	t.Logf("%d tests and lifecycles of %d kinds", len(asked)-1, strings.Count(string(out), "--- PASS: TestLifecycles/"))
}
