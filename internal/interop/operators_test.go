package interop

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// suite is a package of controller-runtime whose own tests, as they are in its module, find drydock where they expect
// the API server and etcd of envtest.
type suite struct {
	name   string // below controller-runtime's pkg
	passed int    // specs that must pass, so that none is lost without a word
	// without names specs that are left out, by the reason.
	without map[string]string
}

// The others of its packages do not ask an API server, or for webhooks: drydock calls nobody.
var suites = []suite{
	{name: "client", passed: 307, without: map[string]string{"CertificateSigningRequests are not served": "should be able to approve CSRs"}},
	{name: "cache", passed: 276},
	{name: "manager", passed: 107},
	{name: "builder", passed: 72},
	{name: "controller", passed: 32},
	{name: "controller/controllerutil", passed: 60},
	{name: "cluster", passed: 15},
	{name: "source", passed: 19},
	{name: "internal/controller", passed: 75},
	{name: "internal/recorder", passed: 5},
}

var passedSpecs = regexp.MustCompile(`(\d+) Passed \| (\d+) Failed`)

// TestControllerRuntimesOwnSuites has the tests of controller-runtime pass against "drydock up --api-only", where they run against
// envtest with their authors: typed, unstructured and metadata clients with every verb and subresource, read-your-writes,
// caches of one, of some and of all namespaces with selectors, indexes and transformers, managers that elect a leader,
// builders, watches of owned kinds, finalizers, owner references, recorders.
func TestControllerRuntimesOwnSuites(t *testing.T) {
	const module = "sigs.k8s.io/controller-runtime"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	if err != nil {
		t.Fatalf("find %s: %v", module, err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !strings.HasPrefix(version, "v0.25.") {
		t.Fatalf("controller-runtime is %s: count its specs anew", version)
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // managers wait most of the time
			program := build(t, strings.ReplaceAll(s.name, "/", "-")+".test", ".", module+"/pkg/"+s.name)
			w := start(t, "DRYDOCK_API_ONLY=true", "DRYDOCK_DEVICES=sim")
			args := []string{"-test.timeout=8m", "-ginkgo.no-color"}
			for _, spec := range s.without {
				args = append(args, "-ginkgo.skip="+spec)
			}
			cmd := w.command(t.Context(), program, args...)
			cmd.Dir = filepath.Join(dir, "pkg", s.name)
			cmd.Env = append(cmd.Env, "USE_EXISTING_CLUSTER=true")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, tail(string(out), 150))
			}
			m := passedSpecs.FindStringSubmatch(string(out))
			if m == nil {
				t.Fatalf("no summary in:\n%s", tail(string(out), 20))
			}
			if n, _ := strconv.Atoi(m[1]); n != s.passed || m[2] != "0" {
				t.Errorf("%s specs passed, %s failed; %d should pass", m[1], m[2], s.passed)
			}
		})
	}
}
