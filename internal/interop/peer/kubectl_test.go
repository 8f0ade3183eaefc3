package peer

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestKubectlOutputIsUpstreams has kubectl print of upstream's server what the scripts of internal/interop expect of ours, as far as it takes
// an API server alone: scripts say themselves what they leave out where "upstream" is true.
func TestKubectlOutputIsUpstreams(t *testing.T) {
	w := newWorld(t, Start(t, Options{Kinds: true}))
	for _, script := range []string{"get", "write", "describe", "history"} {
		t.Run(script, func(t *testing.T) {
			w.fresh(t)
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^TestKubectlScripts$/^"+script+"$", ".")
			cmd.Dir = ".."
			cmd.Env = append(os.Environ(), "DRYDOCK_KUBECTL_OF="+w.peer.Kubeconfig)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), "--- PASS: TestKubectlScripts/"+script) {
				t.Errorf("the script did not run:\n%s", out)
			}
		})
	}
}
