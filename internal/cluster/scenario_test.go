package cluster

import (
	"testing"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/scenario"
)

// world lets a story act on a cluster.
type world struct{ *Cluster }

func (w world) Lab() *lab.Lab                { return w.Cluster.Lab }
func (w world) KubeletDir(n string) string   { return w.Layout.Kubelet(n) }
func (w world) Kill(component string) error  { return w.parts.kill(component) }
func (w world) Start(component string) error { return w.parts.start(component) }

// TestScenarios plays each story in each mode, in a cluster of its own.
func TestScenarios(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			scenario.Run(t, scenario.Params{
				Dir: "../scenario/testdata",
				Begin: func(t testing.TB) (scenario.World, func()) {
					c := begin(t, Options{Devices: mode})
					return world{c}, func() { c.Close() }
				},
				Env: []string{"DEVICES=" + string(mode)},
			})
		})
	}
}
