package volumemanager

import (
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestLookAt: a pass is about what changed and what was left open, not about what there is.
func TestLookAt(t *testing.T) {
	m := &Manager{volumes: newTouched[UniqueName](), touches: newTouched[types.UID](), open: map[UniqueName]bool{},
		changed: newBell(), inUse: newBell(), waits: newBells(), reconcile: make(chan struct{}, 1), populate: make(chan struct{}, 1)}
	m.desired, m.actual = newDesired(m), newActual(m)
	m.pending = newPending(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), m.ended)
	expect := func(want ...UniqueName) {
		t.Helper()
		if got := m.lookAt(); !slices.Equal(got, want) {
			t.Errorf("looks at %v, want %v", got, want)
		}
	}
	for _, v := range []UniqueName{"c", "a", "b"} {
		m.actual.markAttached(v, nil, "p", "", NotAttachable)
	}
	expect("a", "b", "c") // the first pass is about everything
	expect()
	m.logMark(m.actual.markDeviceUnmounted("c"))
	m.keepOpen("b", errPrecondition)
	m.keepOpen("a", errPaused) // the end of its pause touches it
	expect("b", "c")
	expect()
	if err := m.pending.start(key{"a", "p"}, "p", opMount); err != nil {
		t.Fatal(err)
	}
	m.touches.take()
	m.pending.end(key{"a", "p"}, nil)
	expect("a")
	if pods, all := m.touches.take(); all || !slices.Equal(slices.Collect(maps.Keys(pods)), []types.UID{"p"}) {
		t.Errorf("the populator looks at %v", pods)
	}
	m.notify()
	expect("a", "b", "c")
}
