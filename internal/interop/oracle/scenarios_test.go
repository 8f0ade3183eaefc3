package oracle

import (
	"flag"
	"io"
	"os"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"
)

// TestMain keeps the kubelet quiet, unless ORACLE_LOG is set.
func TestMain(m *testing.M) {
	if os.Getenv("ORACLE_LOG") == "" {
		flags := flag.NewFlagSet("klog", flag.PanicOnError)
		klog.InitFlags(flags)
		flags.Set("stderrthreshold", "FATAL")
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	os.Exit(m.Run())
}

// scenario is a story that both kubelets act.
type scenario struct {
	name     string
	act      func(*world)
	spec     func(*storagev1.CSIDriverSpec) // changes the driver's object
	unstaged bool                           // the driver cannot stage
	known    []difference
}

// TestAgainstTheKubelet acts each scenario on both and compares what is to be seen.
func TestAgainstTheKubelet(t *testing.T) {
	all := slices.Concat(basics(), others(), damage())
	ours, theirs := make([][]string, len(all)), make([][]string, len(all))
	act := func(t *testing.T, of start, s scenario, seen *[]string) {
		w := newWorld(t, of, s)
		w.begin()
		s.act(w)
		*seen = w.recorded
	}
	t.Run("act", func(t *testing.T) {
		t.Run("kubelet", func(t *testing.T) {
			t.Parallel() // beside nodesim's, but one after the other
			for i, s := range all {
				t.Run(s.name, func(t *testing.T) { act(t, startUpstream, s, &theirs[i]) })
			}
		})
		t.Run("nodesim", func(t *testing.T) {
			t.Parallel()
			for i, s := range all {
				t.Run(s.name, func(t *testing.T) { act(t, startNodesim, s, &ours[i]) })
			}
		})
	})
	for i, s := range all {
		t.Run("compare/"+s.name, func(t *testing.T) {
			if ours[i] == nil || theirs[i] == nil {
				t.Skip("it was not acted to its end, or not by both")
			}
			compare(t, theirs[i], ours[i], s.known)
		})
	}
}
