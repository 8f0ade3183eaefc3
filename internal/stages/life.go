package stages

import (
	"fmt"
	"time"
)

// life derives everything about one claim.
func (t *Tracker) life(c *claim) Life {
	v := t.volumeFor(c)
	l := Life{Ref: c.ref, UID: string(c.uid), Class: c.class, Size: c.size, Mode: c.mode, Phase: c.phase, Uses: []Use{}}
	if v != nil {
		l.PV, l.Handle, l.Driver = v.name, v.handle, v.driver
	}
	if v != nil && v.pv == nil && v.pvGone.zero() {
		l.PV = "" // so far only calls know that name
	}
	l.Provision = t.provisionSteps(c, v)
	for _, u := range c.uses {
		steps := t.useSteps(c, v, u)
		l.Uses = append(l.Uses, Use{Pod: u.pod, PodUID: string(u.uid), Node: u.node, Over: u.final != nil, Steps: steps})
	}
	l.End = []Step{t.deleteStep(c, v)}
	l.Truths = t.truths(c, v)
	for _, s := range l.Steps() {
		l.Changed = later(later(l.Changed, s.Start), s.End)
	}
	l.Health, l.Doing = sum(l, c)
	return l
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (t *Tracker) provisionSteps(c *claim, v *volume) []Step {
	claimed := newStep(Claimed)
	claimed.Start, claimed.Coarse = c.created.at, c.created.coarse
	claimed.finish(c.created)

	created := newStep(Created)
	tries, older := v.tries("CreateVolume")
	created.tried(tries, older)
	exists := v != nil && (v.pv != nil || !v.pvGone.zero())
	switch {
	case exists && v.pv != nil && !v.pv.provisioned && len(tries) == 0:
		created.skip("bound to a volume that existed")
	case exists && len(tries) == 0:
		created.finish(v.pvSeen)
	case len(tries) == 0 && c.provisioner && c.deleting.zero() && !c.isBound:
		created.State, created.Start = Active, c.created.at
	}
	created.blame(c.problems[Created], tries)
	created.explain(c.notes[Created])

	bound := newStep(Bound)
	switch {
	case c.phase == "Lost":
		bound.State, bound.Error = Failed, "the claim has lost its volume"
	case c.isBound:
		if created.State.Over() {
			bound.Start, bound.Coarse = created.End, created.Coarse
		}
		if bound.Start.IsZero() {
			bound.Start, bound.Coarse = c.created.at, c.created.coarse
		}
		bound.finish(c.bound)
	case exists && c.deleting.zero():
		bound.State, bound.Start = Active, created.End
	}
	bound.blame(c.problems[Bound], nil)
	bound.explain(c.notes[Bound])
	return []Step{claimed, created, bound}
}

func (t *Tracker) deleteStep(c *claim, v *volume) Step {
	s := newStep(Deleted)
	if c.deleting.zero() && c.gone.zero() {
		return s
	}
	tries, older := v.tries("DeleteVolume")
	s.tried(tries, older)
	switch {
	case c.gone.zero():
		s.State, s.Start = Active, c.deleting.at
		for _, u := range c.uses {
			if u.gone.zero() {
				s.Note = "waits for pod " + u.pod + ", which uses the claim"
			}
		}
	case v == nil || (v.pv == nil && v.pvGone.zero()):
		if len(tries) == 0 {
			s.skip("there was no volume")
		}
	case v.pv == nil:
		if s.Start.IsZero() {
			s.Start = c.gone.at
		}
		s.forgive()
		s.finish(v.pvGone)
	case v.pv.retain:
		s.skip("kept: the reclaim policy is Retain")
	default:
		if s.Start.IsZero() {
			s.Start = c.gone.at
		}
		if s.State != Failed {
			s.reopen()
		}
		s.blame(v.problem, tries)
	}
	return s
}

// sum puts a life into one word and one line.
func sum(l Life, c *claim) (Health, string) {
	var use *Use
	leaving := false // the latest use
	if n := len(c.uses); n > 0 {
		use, leaving = &l.Uses[n-1], c.uses[n-1].leaving()
	}
	var current *Step
	steps := l.Steps()
	for i, s := range steps {
		if leaving && !s.Name.WayBack() && s.Name != Claimed && s.Name != Created && s.Name != Bound {
			continue // given up, whatever became of it
		}
		if s.State == Failed {
			return Broken, s.Name.Doing() + " failed"
		}
		if s.State == Active && current == nil {
			current = &steps[i]
		}
	}
	end := l.End[0]
	switch {
	case !c.gone.zero() && end.State == Done:
		return Gone, "deleted"
	case !c.gone.zero() && end.State == Skipped:
		return Gone, "claim deleted; " + end.Note
	case current != nil && current.Name.WayBack() && (leaving || use == nil):
		if current.Note != "" {
			return Leaving, current.Note
		}
		return Leaving, current.Name.Doing()
	case leaving && !use.Over:
		return Leaving, nextDoing(steps)
	case use != nil && !leaving && c.uses[len(c.uses)-1].ran:
		return InUse, fmt.Sprintf("in use by %s on %s", use.Pod, use.Node)
	case current != nil:
		return Working, current.Name.Doing()
	case use != nil && !leaving:
		return Working, nextDoing(steps)
	case c.isBound:
		return Idle, "bound; no pod uses it"
	}
	for _, s := range steps {
		if s.Note != "" && s.State == Pending {
			return Waiting, s.Note
		}
	}
	return Waiting, "waits to be provisioned"
}

// nextDoing is about the first step that has not begun.
func nextDoing(steps []Step) string {
	for _, s := range steps {
		if s.State == Pending {
			return "before " + s.Name.Doing()
		}
	}
	return "settled"
}
