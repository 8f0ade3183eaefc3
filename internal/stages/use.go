package stages

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// use is the record of one pod's use of a claim.
type use struct {
	pod    string
	uid    types.UID
	node   string
	phase  corev1.PodPhase
	reason string
	born   time.Time // the pod's own creation timestamp: never later than the truth
	ran    bool      // it was seen running; when may be unknown

	created, scheduled, running, ended, deleting, gone stamp
	problems                                           map[Name]problem
	final                                              []Step // set once the use is over
}

// stopped tells whether the pod will not run any more, whatever its object says.
func (u *use) stopped() bool { return u.phase == corev1.PodSucceeded || u.phase == corev1.PodFailed }

// leaving tells whether the way back has begun.
func (u *use) leaving() bool { return !u.deleting.zero() || !u.gone.zero() || !u.ended.zero() }

// window picks the tries that belong to this use: of its node (or of none that is
// known), of its pod where they name one, and begun at or after since.
func (u *use) window(v *volume, op string, since time.Time) (out []Try, older int) {
	tries, dropped := v.tries(op, u.node, "")
	for _, try := range tries {
		if try.Start.Before(since) || (try.pod != "" && try.pod != string(u.uid)) {
			continue
		}
		out = append(out, try)
	}
	if len(out) == len(tries) {
		older = dropped
	}
	return out, older
}

// attachment is the one that serves this use, or nil.
func (u *use) attachment(v *volume) *attachment {
	if v == nil || u.node == "" {
		return nil
	}
	a := v.attachments[u.node]
	if a != nil && !a.gone.zero() && a.gone.at.Before(u.born) {
		return nil // of an earlier use
	}
	return a
}

// useSteps derives the steps of one use.
func (t *Tracker) useSteps(c *claim, v *volume, u *use) []Step {
	if u.final != nil {
		return u.final
	}
	up := upSteps(c, v, u)
	down := downSteps(c, v, u, up)
	if !u.gone.zero() && !slices.ContainsFunc(down, func(s Step) bool { return !s.State.Over() }) {
		// Nothing can be added to it, and the records may now go to another use of the node.
		for i := range up {
			if s := &up[i]; s.State == Pending || s.State == Active {
				s.skip("the pod went before")
			}
		}
		u.final = slices.Concat(up, down)
		return u.final
	}
	return slices.Concat(up, down)
}

func upSteps(c *claim, v *volume, u *use) []Step {
	since := u.born
	a := u.attachment(v)

	scheduled := newStep(Scheduled)
	scheduled.Start, scheduled.Coarse = u.created.at, u.created.coarse
	if u.node != "" {
		scheduled.finish(u.scheduled)
	} else if !u.leaving() {
		scheduled.State = Active
	}
	scheduled.blame(u.problems[Scheduled], nil)

	attached := attachStep(v, u, a)
	device, formatted := callStep(DeviceReady, v, u, "wait for device", since), callStep(Formatted, v, u, "mkfs", since)
	staged, published := callStep(Staged, v, u, "NodeStageVolume", since), callStep(Published, v, u, "NodePublishVolume", since)

	running := newStep(Running)
	switch {
	case u.phase == corev1.PodFailed:
		running.State, running.Error = Failed, u.reason
		if running.Error == "" {
			running.Error = "the pod has failed"
		}
	case u.ran:
		running.Start, running.Coarse = published.End, published.Coarse
		running.finish(u.running)
	case published.State.Over() && !u.leaving():
		running.State, running.Start = Active, published.End
	}

	// What a later step proves, an earlier one need not: its call may have been made before
	// we looked, for another pod, or by a driver that reports no steps of its own.
	if u.ran && !published.State.Over() {
		published.State = Done
	}
	if published.State.Over() && staged.State == Pending {
		if u.created.coarse {
			staged.State = Done
		} else {
			staged.skip("already staged on " + u.node)
		}
	}
	if begun := !staged.Start.IsZero() || staged.State.Over(); begun && a == nil && !attached.State.Over() {
		attached.skip("this driver needs no attach")
	}
	if staged.State.Over() {
		inferDevice(c, &device, &formatted)
	}
	return []Step{scheduled, attached, device, formatted, staged, published, running}
}

// inferDevice explains a device and a filesystem that nobody reported, once the volume is staged.
func inferDevice(c *claim, device, formatted *Step) {
	reported := device.State != Pending
	if !reported {
		device.skip("no wait was reported")
	}
	if formatted.State != Pending {
		return
	}
	switch {
	case c.mode == string(corev1.PersistentVolumeBlock):
		formatted.skip("a block volume has no filesystem")
	case reported:
		formatted.skip("it held a filesystem already")
	default:
		formatted.skip("no mkfs was reported")
	}
}

func callStep(n Name, v *volume, u *use, op string, since time.Time) Step {
	s := newStep(n)
	tries, older := u.window(v, op, since)
	s.tried(tries, older)
	s.blame(u.problems[n], tries)
	return s
}

// attachStep goes by the VolumeAttachment; the calls add tries and errors.
func attachStep(v *volume, u *use, a *attachment) Step {
	s := newStep(Attached)
	tries, older := u.window(v, "ControllerPublishVolume", u.born)
	s.tried(tries, older)
	if a != nil {
		if len(tries) == 0 && a.attached && a.seen.at.Before(u.created.at) {
			s.skip("already attached to " + u.node)
			return s
		}
		if s.Start.IsZero() || a.seen.at.Before(s.Start) {
			s.Start, s.Coarse = a.seen.at, a.seen.coarse
		}
		switch {
		case a.attached || !a.up.zero():
			s.finish(a.up)
			s.forgive()
		case a.attachErr != "" && len(tries) == 0:
			s.State, s.Error, s.Code = Failed, a.attachErr, a.attachCode
		case s.State != Failed:
			s.reopen()
		}
	}
	s.blame(u.problems[Attached], tries)
	return s
}

func downSteps(c *claim, v *volume, u *use, up []Step) []Step {
	unpublished, unstaged, detached := newStep(Unpublished), newStep(Unstaged), newStep(Detached)
	steps := func() []Step { return []Step{unpublished, unstaged, detached} }
	if !u.leaving() {
		return steps()
	}
	if u.node == "" {
		for _, s := range []*Step{&unpublished, &unstaged, &detached} {
			s.skip("the pod was on no node")
		}
		return steps()
	}
	staged, published := up[4], up[5]
	a, other := u.attachment(v), sharedNode(c, u)

	tries, older := u.window(v, "NodeUnpublishVolume", later(u.born, published.Start))
	unpublished.tried(tries, older)
	if len(tries) == 0 {
		seen := len(published.Tries) > 0
		unpublished.Start = later(u.deleting.at, u.ended.at)
		switch {
		case !seen && !published.State.Over() && !u.gone.zero():
			unpublished.skip("it was never published")
		case a != nil && !a.gone.zero() && seen && !u.gone.zero():
			unpublished.skip("detached from " + u.node + " without an unpublish")
		case !u.gone.zero() && !seen:
			unpublished.finish(u.gone)
		default:
			unpublished.State = Active
			if !u.gone.zero() {
				unpublished.Note = "the pod is gone, and " + u.node + " has not unpublished its volume"
			}
		}
	}
	if other != "" {
		unstaged.skip(other + " still uses it on " + u.node)
		detached.skip(other + " still uses it on " + u.node)
		return steps()
	}

	since := later(u.born, staged.Start)
	tries, older = u.window(v, "NodeUnstageVolume", since)
	unstaged.tried(tries, older)
	if len(tries) == 0 && unpublished.State.Over() {
		switch {
		case a != nil && (!a.deleting.zero() || !a.gone.zero()):
			unstaged.skip("detached without an unstage")
			if len(staged.Tries) == 0 {
				unstaged.State, unstaged.Note = Done, ""
			}
		case len(staged.Tries) > 0:
			unstaged.State = Active
		case !u.gone.zero() && a == nil:
			unstaged.skip("it was not staged while we looked")
		}
	}
	tries, older = u.window(v, "ControllerUnpublishVolume", since)
	detached.tried(tries, older)
	detachStep(&detached, u, a)
	return steps()
}

// detachStep goes by the VolumeAttachment, as attachStep does.
func detachStep(s *Step, u *use, a *attachment) {
	if a == nil {
		if !u.gone.zero() {
			s.skip("it was not attached")
		}
		return
	}
	if !a.deleting.zero() && (s.Start.IsZero() || a.deleting.at.Before(s.Start)) {
		s.Start = a.deleting.at
	}
	switch {
	case !a.gone.zero():
		s.finish(a.gone)
		s.forgive()
	case !a.deleting.zero() && a.detachErr != "" && len(s.Tries) == 0:
		s.State, s.Error, s.Code = Failed, a.detachErr, codeIn(a.detachErr)
	case !a.deleting.zero() && s.State != Failed, s.State == Done:
		s.reopen()
	}
}

// sharedNode names another pod that still uses the volume on u's node.
func sharedNode(c *claim, u *use) string {
	for _, o := range c.uses {
		if o != u && o.node == u.node && !o.leaving() {
			return o.pod
		}
	}
	return ""
}
