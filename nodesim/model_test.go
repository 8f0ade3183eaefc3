package nodesim

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"
)

// TestRandomLife lets pods come and go on three volumes while calls fail and the
// kubelet dies, and holds what the driver saw against the invariants: published only
// between stage and unstage, unstaged only when no pod has it, detached only when
// nothing is mounted. In the end everything comes down.
func TestRandomLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.hurry()
		defer w.close()
		watch := &orders{staged: map[string]bool{}, targets: map[string]map[string]bool{}}
		w.guest.order = watch.check
		for _, c := range []string{"a", "b", "c"} {
			w.addVolume(c, "vol-"+c)
		}
		w.startKubelet()
		pods, serial := map[string]bool{}, 0
		for range rapid.IntRange(5, 25).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"create", "create", "delete", "kill", "fault", "heal", "wait"}).Draw(rt, "step") {
			case "create":
				if len(pods) < 6 {
					serial++
					name := fmt.Sprintf("p%d", serial)
					pods[name] = true
					w.createPod(pod(name, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "claim")))
				}
			case "delete":
				for _, name := range sorted(pods) {
					delete(pods, name)
					w.deletePod(name)
					break
				}
			case "kill":
				w.killKubelet()
				w.startKubelet()
			case "fault":
				method := rapid.SampledFrom([]string{"Stage", "Publish", "Unpublish", "Unstage"}).Draw(rt, "method")
				code := rapid.SampledFrom([]codes.Code{codes.DeadlineExceeded, codes.Internal, codes.Aborted}).Draw(rt, "code")
				if f := failing(method, code, 1); rapid.Bool().Draw(rt, "after") && code != codes.Internal {
					w.guest.set(nil, f)
				} else {
					w.guest.set(f, nil)
				}
			case "heal":
				w.guest.set(nil, nil)
			case "wait":
				for _, name := range sorted(pods) {
					w.waitRunning(name)
					break
				}
			}
			if bad := watch.bad(); bad != "" {
				rt.Fatalf("%s\n%s", bad, w.describe())
			}
		}
		w.guest.set(nil, nil)
		for name := range pods {
			w.deletePod(name)
		}
		w.checkClean()
		if bad := watch.bad(); bad != "" {
			rt.Fatalf("%s\n%s", bad, w.describe())
		}
	})
}

func sorted(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// orders follows what the driver did, and remembers the first thing that was out of order.
type orders struct {
	mu      sync.Mutex
	staged  map[string]bool            // guarded by mu
	targets map[string]map[string]bool // guarded by mu: by volume
	first   string                     // guarded by mu
}

func (o *orders) bad() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// check is told of every call before its work is done.
func (o *orders) check(method, volume, target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.targets[volume] == nil {
		o.targets[volume] = map[string]bool{}
	}
	complain := func(what string) {
		if o.first == "" {
			o.first = fmt.Sprintf("%s of %s at %s: %s", method, volume, target, what)
		}
	}
	switch method {
	case "Stage":
		o.staged[volume] = true
	case "Publish":
		if !o.staged[volume] {
			complain("it is not staged")
		}
		o.targets[volume][target] = true
	case "Unpublish":
		delete(o.targets[volume], target)
	case "Unstage":
		if len(o.targets[volume]) > 0 {
			complain(fmt.Sprintf("it is published at %v", o.targets[volume]))
		}
		o.staged[volume] = false
	case "Detach":
		if o.staged[volume] || len(o.targets[volume]) > 0 {
			complain("it is still mounted")
		}
	}
}
