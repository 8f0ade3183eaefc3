package stages

// Progress turns successive states of a life into its news: each step once when
// it is over, and a failure once for each failed try. It is what a terminal prints.
type Progress struct {
	seen map[progressKey]progressState
}

type progressKey struct {
	claim string // UID, so that a new claim of the same name begins anew
	pod   string
	step  Name
}

type progressState struct {
	state    State
	attempts int
}

// NewProgress returns a Progress that has reported nothing.
func NewProgress() *Progress { return &Progress{seen: map[progressKey]progressState{}} }

// Next returns the steps that finished or failed since the last call, in the order
// of the life. Skipped steps are reported too, so that the reader sees why a step
// did not happen.
func (p *Progress) Next(l Life) []Step {
	var out []Step
	note := func(pod string, steps []Step) {
		for _, s := range steps {
			k := progressKey{l.UID, pod, s.Name}
			now := progressState{s.State, s.Attempts}
			switch before := p.seen[k]; {
			case s.State == Failed && before != now, s.State.Over() && !before.state.Over():
				out = append(out, s)
			}
			if before := p.seen[k]; !before.state.Over() {
				p.seen[k] = now
			}
		}
	}
	note("", l.Provision)
	for _, u := range l.Uses {
		note(u.PodUID, u.Steps)
	}
	note("", l.End)
	return out
}
