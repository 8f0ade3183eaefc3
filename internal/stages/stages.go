// Package stages derives the life of each claim's volume from what is public:
// the Kubernetes objects and the timeline's spans.
//
// It promises one ordered list of steps for a claim, from its creation to a
// running pod and back to the deleted volume, each with its state, times,
// attempts and last error. The dashboard and the terminal's progress draw the
// same list.
//
// It is pure: a [Tracker] is fed objects and spans in any order, with repeats
// allowed, and asked for a [Life]. It starts no goroutine, opens nothing and
// never blocks. A tracker is not safe for concurrent use; one goroutine owns it.
//
// Times. Spans are exact. What is known only from an object is the time at which
// the tracker saw the change, or, for an object that is older than the tracker,
// the object's own timestamp of one second's resolution; such a step is marked
// Coarse. A step that was over before anybody looked has no times at all.
//
// It does not predict: NextTry is the caller's documented backoff applied to the
// failures that were seen, and is left out where the caller is not known.
package stages

import (
	"strconv"
	"time"
)

// Name names a step. The order below is the order of a life.
type Name string

// The steps. Claimed to Bound and Deleted belong to the claim; the others to one
// pod's use of it.
const (
	Claimed     Name = "claimed"
	Created     Name = "created"
	Bound       Name = "bound"
	Scheduled   Name = "scheduled"
	Attached    Name = "attached"
	DeviceReady Name = "device"
	Formatted   Name = "formatted"
	Staged      Name = "staged"
	Published   Name = "published"
	Running     Name = "running"
	Unpublished Name = "unpublished"
	Unstaged    Name = "unstaged"
	Detached    Name = "detached"
	Deleted     Name = "deleted"
)

// labels say in words what a step has achieved; doing says what it is about while it lasts.
var labels = map[Name]struct{ done, doing string }{
	Claimed:     {"claim created", "creating the claim"},
	Created:     {"volume created in the cloud", "creating the volume"},
	Bound:       {"bound", "binding"},
	Scheduled:   {"scheduled", "scheduling"},
	Attached:    {"attached", "attaching"},
	DeviceReady: {"device ready", "waiting for the device"},
	Formatted:   {"formatted", "formatting"},
	Staged:      {"staged", "staging"},
	Published:   {"published", "publishing"},
	Running:     {"running", "starting the pod"},
	Unpublished: {"unpublished", "unpublishing"},
	Unstaged:    {"unstaged", "unstaging"},
	Detached:    {"detached", "detaching"},
	Deleted:     {"volume deleted in the cloud", "deleting the volume"},
}

// Label says what the step has achieved once it is done: "volume created in the cloud".
func (n Name) Label() string { return labels[n].done }

// Doing says what goes on while the step lasts: "creating the volume".
func (n Name) Doing() string { return labels[n].doing }

// WayBack tells whether the step takes a volume down rather than up.
func (n Name) WayBack() bool {
	switch n {
	case Unpublished, Unstaged, Detached, Deleted:
		return true
	}
	return false
}

// State of a step.
//
//	pending --> active --> done
//	   |          |  ^
//	   |          v  |
//	   |        failed          (its last try failed; the next makes it active)
//	   +--> skipped             (this life does not need it; Note says why)
type State string

// The states.
const (
	Pending State = "pending"
	Active  State = "active"
	Done    State = "done"
	Failed  State = "failed"
	Skipped State = "skipped"
)

// Over tells whether the step needs nothing more.
func (s State) Over() bool { return s == Done || s == Skipped }

// Try is one attempt at a step: a call with its answer.
type Try struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"` // zero while it runs
	Code  string    `json:"code,omitempty"`
	Error string    `json:"error,omitempty"`
	By    string    `json:"by,omitempty"` // the caller: provisioner, attacher, kubelet
	Node  string    `json:"node,omitempty"`
	Op    string    `json:"op,omitempty"` // CreateVolume, mkfs.ext4 ...
	// Fault names the lab's rule that made the answer, and what it did.
	Fault string `json:"fault,omitempty"`

	id  string // the span's
	pod string // UID of the pod that the call names, where it names one
}

func (t Try) running() bool { return t.End.IsZero() }
func (t Try) failed() bool  { return !t.running() && CallFailed(t.Code, t.Error) }
func (t Try) ok() bool      { return !t.running() && !t.failed() }

// CallFailed tells whether a span's outcome is a failure. Codes are their transport's
// own: gRPC names, of which only OK is a success, and HTTP statuses.
func CallFailed(code, problem string) bool {
	if problem != "" {
		return true
	}
	if status, err := strconv.Atoi(code); err == nil {
		return status >= 400
	}
	return code != "" && code != "OK"
}

// Step is one step of a life.
type Step struct {
	Name  Name   `json:"name"`
	Label string `json:"label,omitempty"`
	State State  `json:"state"`
	// Start and End are zero where they are not known; End is zero unless the step is done or failed.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Millis is End-Start in milliseconds, zero while either is unknown.
	Millis float64 `json:"ms,omitempty"`
	// Coarse marks times that come from timestamps of one second's resolution.
	Coarse bool `json:"coarse,omitempty"`
	// Attempts counts all tries; Tries holds the latest of them, oldest first.
	Attempts int   `json:"attempts,omitempty"`
	Tries    []Try `json:"tries,omitempty"`
	// By is the caller of the last try: provisioner, attacher, kubelet, driver.
	By string `json:"by,omitempty"`
	// Error and Code are those of the last try of a failed step.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	// Fault is set where the last failure was made on purpose: the lab's rule and its action.
	Fault string `json:"fault,omitempty"`
	// NextTry is when the caller is expected to try again, zero if not known.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Note says why a step waits or was skipped.
	Note string `json:"note,omitempty"`
}

// Duration is End-Start, zero while either is unknown.
func (s Step) Duration() time.Duration {
	if s.Start.IsZero() || s.End.IsZero() {
		return 0
	}
	return s.End.Sub(s.Start)
}

// Ref names a claim.
type Ref struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Use is one pod's use of the volume.
type Use struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	Node   string `json:"node,omitempty"`
	// Over is set once the pod is gone and nothing of the use is left on its node.
	Over  bool   `json:"over,omitempty"`
	Steps []Step `json:"steps"` // Scheduled to Detached
}

// Health sums a life up in one word that can be coloured and filtered.
type Health string

// The healths.
const (
	Waiting Health = "waiting" // for somebody: a pod, an administrator
	Working Health = "working" // a step is under way
	InUse   Health = "in use"  // a pod runs with it
	Idle    Health = "idle"    // bound, and no pod wants it
	Broken  Health = "failed"  // the current step's last try failed
	Leaving Health = "leaving" // on the way back
	Gone    Health = "gone"
)

// Life is the state of one claim's volume.
type Life struct {
	Ref
	UID    string `json:"uid"`
	Class  string `json:"class,omitempty"`
	Size   string `json:"size,omitempty"` // the claim's capacity, or its request until it has one
	Mode   string `json:"mode"`           // Filesystem or Block
	Phase  string `json:"phase"`          // the claim's own: Pending, Bound, Lost
	PV     string `json:"pv,omitempty"`
	Handle string `json:"handle,omitempty"`
	Driver string `json:"driver,omitempty"`

	Health Health `json:"health"`
	// Doing says in words what goes on: "attaching", "in use by web-0 on n1".
	Doing string `json:"doing"`
	// Changed is when the latest step began or ended.
	Changed time.Time `json:"changed,omitzero"`

	Provision []Step `json:"provision"` // Claimed, Created, Bound
	Uses      []Use  `json:"uses"`      // oldest first; the latest few
	End       []Step `json:"end"`       // Deleted

	Truths Truths `json:"truths"`
}

// Steps is the life as one list: provision, the latest use, and the end. Steps of
// the way back are left out as long as it has not begun.
func (l Life) Steps() []Step {
	out := append([]Step(nil), l.Provision...)
	if n := len(l.Uses); n > 0 {
		out = append(out, trimWayBack(l.Uses[n-1].Steps)...)
	}
	return append(out, trimWayBack(l.End)...)
}

// Step returns the named step of the list that Steps gives.
func (l Life) Step(n Name) (Step, bool) {
	for _, s := range l.Steps() {
		if s.Name == n {
			return s, true
		}
	}
	return Step{}, false
}

func trimWayBack(steps []Step) []Step {
	begun := false
	for _, s := range steps {
		if s.Name.WayBack() && s.State != Pending {
			begun = true
		}
	}
	var out []Step
	for _, s := range steps {
		if begun || !s.Name.WayBack() {
			out = append(out, s)
		}
	}
	return out
}
