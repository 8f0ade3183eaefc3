package oracle

import "testing"

// scenario is a story that both kubelets act.
type scenario struct {
	name  string
	act   func(*world)
	known []difference
}

// TestAgainstTheKubelet acts each scenario on both and compares what is to be seen.
func TestAgainstTheKubelet(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			var seen [2][]string
			for i, side := range []struct {
				name string
				of   start
			}{{"kubelet", startUpstream}, {"nodesim", startNodesim}} {
				ok := t.Run(side.name, func(t *testing.T) {
					w := newWorld(t, side.of)
					w.begin()
					s.act(w)
					seen[i] = w.recorded
				})
				if !ok {
					t.FailNow()
				}
			}
			compare(t, seen[0], seen[1], s.known)
		})
	}
}

func scenarios() []scenario {
	return []scenario{
		{name: "mount and unmount", act: func(w *world) {
			w.addVolume("c")
			w.createPod("p", []string{"c"})
			w.awaitRunning("p")
			w.note("running")
			w.deletePod("p")
			w.awaitGone("p")
			w.awaitIdle()
			w.note("gone")
		}},
	}
}
