// Package scenario runs stories about a cluster: txtar files whose script applies
// objects, breaks things, waits for what must happen and checks what must hold. The
// same files are tests, replayed bug reports, and lessons.
//
// A script is testscript's (github.com/rogpeppe/go-internal), with verbs of our own:
//
//	apply FILE...                        server-side apply, in order
//	delete [-now] [-nowait] KIND/NAME... delete, and wait until it is gone; -now is a forced delete with no grace
//	wait KIND/NAME CONDITION             gone, exists, deleting, bound, running, ready, or {jsonpath}=VALUE
//	wait event REASON KIND/NAME [TEXT]   an event about the object, with the text in its message
//	wait call METHOD [KEY=VALUE...]      a CSI call that has ended; keys: code, node, volume, count.
//	                                     In lower case: work of a controller (attach, detach, unwanted)
//	wait fault NAME [N]                  the fault has fired N times (1)
//	expect KIND/NAME CONDITION           the same conditions, now; "! expect" for their contrary
//	expect calls METHOD OP N [KEY=VALUE...]  how many CSI calls there were; OP is ==, <, <=, >, >=
//	expect order METHOD METHOD...        the first successful call of each came in this order
//	fault NAME KIND OP ACTION [KEY=VALUE...]  add a rule; keys: component, node, volume, namespace, name, code, message, delay, skip, times
//	expect fault NAME                    it has fired
//	fault release NAME, fault remove NAME
//	kill COMPONENT, start COMPONENT      kubelet/n1, driver, provisioner, controllers ...
//	                                     (as an object, which outlives the process: apply a Fault or a NodeFault; docs/lab.md)
//	clock +DURATION                      advance the cluster's clock
//	write POD VOLUME FILE                write a marker through the pod's published path
//	verify POD VOLUME FILE               the marker is as it was written, wherever it was written
//	                                     (block volumes too, at a place of their own)
//	inside POD VOLUME WORD...            what a program in the pod does: mkdir DIR, remove PATH, chmod MODE PATH, fill DIR N (files),
//	                                     shutdown (with devices: I/O errors until it is mounted anew; what is synced is kept)
//	where VAR POD VOLUME                 remember the path at which the pod sees the volume
//	expect file POD VOLUME PATH [group=N] [mode=OCTAL]
//	expect stats NODE HANDLE PATH [code=CODE] [units=LIST]  what the driver says of the volume
//	wait page [-without] PATH TEXT       a page of the API server's has the text, or has it no more
//	damage truncate|remove NODE PATTERN  harm files in a node's kubelet directory; PATTERN is of names or, with a slash, of paths below it
//	unplug NODE VOLUME                   pull a disk, unknown to everybody; VOLUME is the PV's name
//	guest NODE                           run a driver of somebody else's there: guest.example.com, for inline volumes
//	rounds N FILE KIND/NAME              apply the file, wait until the object runs, delete it; N times
//	set VAR KIND/NAME {jsonpath}         remember a value as $VAR
//	check                                API, cloud, kernel and files agree
//
// A file called world in the archive says what is special about the cluster: Params.Begin
// gets its words. The conditions [sim] and [loop] are those of testscript.
//
// A name may be NAMESPACE/NAME after the kind: pod/lane/app. Waiting is by watch and
// by the timeline, bounded by Params.Patience; nothing sleeps.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/lab"
)

// World is the cluster that a story happens in.
type World interface {
	// RESTConfig is how a user called as said reaches the Kubernetes API.
	RESTConfig(user string) *rest.Config
	// Lab is the cluster's tap.
	Lab() *lab.Lab
	// Driver is the CSI driver's name.
	Driver() string
	// KubeletDir is a node's kubelet directory.
	KubeletDir(node string) string
	// Kill ends a component at once; it stays down until Start.
	Kill(component string) error
	// Start brings a component up.
	Start(component string) error
	// Unplug pulls a disk out of a node through the cloud, past the cluster.
	Unplug(ctx context.Context, node, volume string) error
	// Check lists what disagrees between API, cloud, kernel and files.
	Check(context.Context) ([]check.Problem, error)
}

// Params say which stories are run, and where.
type Params struct {
	// Dir holds the txtar files.
	Dir string
	// Begin makes a ready cluster for one story, and the function that ends it. What is
	// special about it are the words of the story's file "world".
	Begin func(t testing.TB, special []string) (World, func())
	// Patience bounds each wait; zero means a minute.
	Patience time.Duration
	// Env is set in each script, as KEY=VALUE.
	Env []string
}

// Run runs each file of p.Dir as a subtest, in a cluster of its own.
func Run(t *testing.T, p Params) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s: %v", p.Dir, err)
	}
	if p.Patience == 0 {
		p.Patience = time.Minute
	}
	dir := t.TempDir()
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), translate(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			tb, ok := env.T().(testing.TB)
			if !ok {
				tb = t
			}
			special, err := os.ReadFile(filepath.Join(env.WorkDir, "world"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			w, end := p.Begin(tb, strings.Fields(string(special)))
			env.Defer(end)
			env.Vars = append(env.Vars, p.Env...)
			env.Setenv("DRIVER", w.Driver())
			s, err := newStory(w, p.Patience)
			if err != nil {
				return err
			}
			env.Values[storyKey{}] = s
			return nil
		},
		Cmds: verbs(),
		Condition: func(cond string) (bool, error) {
			if cond != "sim" && cond != "loop" {
				return false, fmt.Errorf("condition %q is not sim or loop", cond)
			}
			return slices.Contains(p.Env, "DEVICES="+cond), nil
		},
	})
}

// ours are the verbs that testscript has commands of its own for, which it would
// take first: the names under which it knows ours.
var ours = map[string]string{"wait": "wait-for", "kill": "kill-component"}

// translate puts those names into a script; the lines stay where they are.
func translate(text []byte) []byte {
	a := txtar.Parse(text)
	lines := strings.SplitAfter(string(a.Comment), "\n")
	for i, line := range lines {
		verb, rest, ok := strings.Cut(line, " ")
		if name := ours[verb]; ok && name != "" {
			lines[i] = name + " " + rest
		}
	}
	a.Comment = []byte(strings.Join(lines, ""))
	return txtar.Format(a)
}

type storyKey struct{}

// verb carries out one line of a script. It returns an error instead of ending the script.
type verb func(s *story, ts *testscript.TestScript, args []string) error

func verbs() map[string]func(*testscript.TestScript, bool, []string) {
	plain := map[string]verb{
		"apply": (*story).apply, "delete": (*story).delete, "wait": (*story).wait, "fault": (*story).fault,
		"kill": (*story).kill, "start": (*story).start, "clock": (*story).clock, "write": (*story).write,
		"verify": (*story).verify, "damage": (*story).damage, "set": (*story).set, "check": (*story).check,
		"inside": (*story).inside, "where": (*story).where, "unplug": (*story).unplug, "guest": (*story).guest, "rounds": (*story).rounds,
	}
	out := map[string]func(*testscript.TestScript, bool, []string){"expect": expect}
	for name, do := range plain {
		known := name
		if ours[name] != "" {
			known = ours[name]
		}
		out[known] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("%s cannot be negated", name)
			}
			s := ts.Value(storyKey{}).(*story)
			began := time.Now()
			if err := do(s, ts, args); err != nil {
				ts.Fatalf("%s %s: %v", name, strings.Join(args, " "), s.explain(err))
			}
			ts.Logf("# %s %s (%s)", name, strings.Join(args, " "), time.Since(began).Round(time.Millisecond))
		}
	}
	return out
}

func expect(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(storyKey{}).(*story)
	err := s.expect(args)
	var no notSo
	switch {
	case err == nil && neg:
		ts.Fatalf("expect %s: it is so", strings.Join(args, " "))
	case err != nil && (!neg || !errors.As(err, &no)):
		ts.Fatalf("expect %s: %v", strings.Join(args, " "), s.explain(err))
	}
}

// notSo says that something is not as expected, in contrast to not knowing.
type notSo struct{ error }

func notSof(format string, args ...any) error { return notSo{fmt.Errorf(format, args...)} }

// explain adds the last calls to an error: what happened is usually there.
func (s *story) explain(err error) error {
	spans := s.world.Lab().Timeline.Spans()
	spans = slices.DeleteFunc(spans, func(sp lab.Span) bool {
		return strings.HasPrefix(sp.Op, "Probe") || strings.Contains(sp.Op, "GetCapabilities") || strings.HasPrefix(sp.Op, "GetPlugin")
	})
	var b strings.Builder
	for _, sp := range spans[max(0, len(spans)-40):] {
		state := sp.Code
		if sp.End.IsZero() {
			state = "running"
		}
		fmt.Fprintf(&b, "\n  %s %s %s/%s %s %s %s", sp.Start.Format("15:04:05.000"), sp.Op, sp.Component, sp.Node, sp.Volume, state, sp.Error)
	}
	return fmt.Errorf("%w\nlast calls:%s", err, b.String())
}

// story is one script on its way.
type story struct {
	world    World
	patience time.Duration
	objects  *objects
	faults   map[string]*lab.Handle
	markers  map[string][]byte // by file name
}

func newStory(w World, patience time.Duration) (*story, error) {
	o, err := newObjects(w.RESTConfig("scenario"))
	if err != nil {
		return nil, err
	}
	return &story{world: w, patience: patience, objects: o, faults: map[string]*lab.Handle{}, markers: map[string][]byte{}}, nil
}

// limit is the context of one verb.
func (s *story) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), s.patience, fmt.Errorf("not within %s", s.patience))
}

var errUsage = errors.New("wrong arguments; see the package's documentation")
