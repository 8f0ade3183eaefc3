package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/scenario"
)

// TestScenarios plays every story in every device mode that this machine can test.
func TestScenarios(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			scenario.Run(t, scenario.Params{
				Dir: "../scenario/testdata",
				Begin: func(tb testing.TB) (scenario.World, func()) {
					dir, err := os.MkdirTemp("/tmp", "dd")
					if err != nil {
						tb.Fatal(err)
					}
					log := zerolog.Nop()
					if level, err := zerolog.ParseLevel(os.Getenv("DRYDOCK_TEST_LOG")); err == nil && level != zerolog.NoLevel {
						log = zerolog.New(os.Stderr).Level(level).With().Str("story", tb.Name()).Logger()
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					c, err := Start(ctx, Options{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Devices: mode, Log: log})
					if err == nil {
						err = c.WaitReady(ctx)
					}
					if err != nil {
						tb.Fatal(err)
					}
					return story{c}, func() {
						if err := c.Close(); err != nil {
							tb.Errorf("close: %v", err)
						}
						os.RemoveAll(dir)
					}
				},
			})
		})
	}
}

// story is a cluster as the stories see it.
type story struct{ c *Cluster }

func (s story) RESTConfig(user string) *rest.Config { return s.c.RESTConfig(user) }
func (s story) Lab() *lab.Lab                       { return s.c.Lab }
func (s story) Driver() string                      { return s.c.Driver() }
func (s story) KubeletDir(node string) string       { return s.c.Layout.Kubelet(node) }
func (s story) Kill(component string) error         { return s.c.parts.kill(component) }
func (s story) Start(component string) error        { return s.c.parts.start(component) }
func (s story) Check(ctx context.Context) ([]check.Problem, error) {
	return s.c.Check(ctx)
}
