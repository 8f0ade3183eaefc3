package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/guest"
)

func TestMain(m *testing.M) {
	guest.Main()
	testscript.Main(m, map[string]func(){"drydock": main})
}

// TestScripts runs the command line as users do. A script that starts a cluster need not stop it: each one's is stopped at its end.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await},
		Setup: func(e *testscript.Env) error {
			state := filepath.Join(e.WorkDir, "state")
			e.Setenv("XDG_STATE_HOME", state)
			e.Setenv("TMPDIR", "/tmp")
			e.Setenv("DRYDOCK_LISTEN", "127.0.0.1:0")
			e.Setenv("DRYDOCK_DEVICES", "sim")
			e.Defer(func() {
				dirs, _ := filepath.Glob(filepath.Join(state, "drydock", "*"))
				for _, d := range dirs {
					if pid, err := cluster.Owner(cluster.Layout{Root: d}); err == nil && pid != 0 {
						if p, err := os.FindProcess(pid); err == nil {
							p.Kill()
						}
					}
				}
			})
			return nil
		},
	})
}
