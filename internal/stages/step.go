package stages

import "time"

func newStep(n Name) Step { return Step{Name: n, Label: n.Label(), State: Pending} }

// finish makes the step done at s.
func (st *Step) finish(s stamp) {
	st.State, st.End = Done, s.at
	st.Coarse = st.Coarse || s.coarse
	st.measure()
}

func (st *Step) measure() {
	st.Millis = float64(st.Duration().Microseconds()) / 1000
	if st.Millis < 0 {
		// One end of it is known better than the other.
		st.Start, st.Millis = st.End, 0
	}
}

func (st *Step) skip(why string) {
	*st = Step{Name: st.Name, Label: st.Label, State: Skipped, Note: why}
}

// reopen makes the step active: its call may be over, what it is for is not.
func (st *Step) reopen() { st.State, st.End, st.Millis = Active, time.Time{}, 0 }

// forgive drops what the tries said of a step that has been reached all the same.
func (st *Step) forgive() { st.Error, st.Code, st.Fault, st.NextTry = "", "", "", time.Time{} }

// tried sets the step by its tries: the last one decides. Tries are by start, older
// ones than those given were dropped.
func (st *Step) tried(tries []Try, older int) {
	if len(tries) == 0 {
		return
	}
	st.Attempts, st.Tries = len(tries)+older, tries
	st.Start = tries[0].Start
	last := tries[len(tries)-1]
	st.By = last.By
	for _, try := range tries {
		if try.ok() {
			// Calls are idempotent and may be repeated after a success; the first one counts.
			st.finish(stamp{at: try.End})
			return
		}
	}
	switch {
	case last.running():
		st.State = Active
	default:
		st.State, st.End = Failed, last.End
		st.Error, st.Code, st.Fault, st.NextTry = last.Error, last.Code, last.Fault, nextTry(tries)
		if st.Error == "" {
			st.Error = "answered with " + last.Code
		}
		st.measure()
	}
}

// explain gives a Normal event to a step that waits.
func (st *Step) explain(p problem) {
	if p.set() && (st.State == Pending || st.State == Active) && len(st.Tries) == 0 {
		st.Note = p.text
	}
}

// blame gives an event to a step that is not over and that no call explains better.
func (st *Step) blame(p problem, tries []Try) {
	if !p.set() || st.State.Over() {
		return
	}
	if st.State == Active && p.at.Before(st.Start) {
		return // what was wrong then is not what goes on now
	}
	if n := len(tries); n > 0 {
		if last := tries[n-1]; last.running() || last.failed() || last.Start.After(p.at) {
			return
		}
	}
	st.State, st.Error, st.Code = Failed, p.text, codeIn(p.text)
	st.Attempts = max(st.Attempts, p.count)
	if st.Start.IsZero() {
		st.Start = p.at
	}
	if p.at.After(st.Start) {
		st.End = p.at
	} else {
		st.End = time.Time{}
	}
	st.measure()
}
