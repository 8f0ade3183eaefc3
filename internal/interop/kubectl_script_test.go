package interop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

// volatile is what differs from run to run in the output of kubectl.
var volatile = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [-+]\d{4}`), "DATE"},
	{regexp.MustCompile(`(resourceVersion"?:) "\d+"`), `$1 "N"`},
	{regexp.MustCompile(`\S*/(LIVE|MERGED)-\d+`), "$1"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [-+]\d{4}`), "TIME"},
	{regexp.MustCompile(`(Resource Version:\s+)\d+`), "${1}N"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-XXXXX"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`(?m)(\s)(\d+[smhd])+( \(x\d+ over \d+[smhd]\))?(\s|$)`), "${1}AGE$4"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`-{5,}`), "----"},
}

// elsewhere names the kubeconfig of another API server, without controllers, that a script is to ask instead: internal/interop/peer
// has one of upstream's, to see that the expected output is what upstream gives. The condition "upstream" is true then.
var elsewhere = os.Getenv("DRYDOCK_KUBECTL_OF")

// TestKubectlScripts runs the scripts of testdata/kubectl with the real kubectl. "scrub" takes what is volatile out
// of the last output and leaves the rest in the file "out", for cmp; -update writes what came into the script.
func TestKubectlScripts(t *testing.T) {
	bin := t.TempDir()
	paths := map[string]string{"kubectl": kubectlBinary(t), "drydock": "/bin/true"}
	if elsewhere == "" {
		paths["drydock"] = drydockBinary(t)
	}
	for name, path := range paths {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/kubectl",
		UpdateScripts: *update,
		Condition: func(name string) (bool, error) {
			if name != "upstream" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return elsewhere != "", nil
		},
		Setup: func(e *testscript.Env) error {
			dir, err := os.MkdirTemp("/tmp", "ddk") // short: sockets are below it
			if err != nil {
				return err
			}
			state := filepath.Join(dir, "s")
			for k, v := range map[string]string{"PATH": bin + ":" + os.Getenv("PATH"), "HOME": dir, "DRYDOCK_STATE": state, "DRYDOCK_LISTEN": "127.0.0.1:0",
				"DRYDOCK_DEVICES": "sim", "KUBECONFIG": filepath.Join(state, "kubeconfig"), "KUBE_EDITOR": "sh " + filepath.Join(e.WorkDir, "edit.sh")} {
				e.Setenv(k, v)
			}
			if elsewhere != "" {
				e.Setenv("KUBECONFIG", elsewhere)
			}
			w := &world{drydock: filepath.Join(bin, "drydock"), env: e.Vars}
			e.Defer(func() {
				if out, err := w.command(t.Context(), w.drydock, "down", "--purge", "--state", state).CombinedOutput(); err != nil {
					e.T().Log(string(out))
				}
				os.RemoveAll(dir)
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"scrub": func(ts *testscript.TestScript, _ bool, _ []string) {
			text := ts.ReadFile("stdout")
			for _, v := range volatile {
				text = v.what.ReplaceAllString(text, v.as)
			}
			if err := os.WriteFile(ts.MkAbs("out"), []byte(text), 0o600); err != nil {
				ts.Fatalf("%v", err)
			}
		}},
	})
}
