package v1alpha1

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
)

// cloudCodes are the answers of the cloud that have names.
var cloudCodes = []string{"errored", "422-pending", "403-capacity"}

// Check refuses what no cluster can carry out, in words that say what would do. Points
// are the kill points that there are. What the API's schema refuses is not looked at again.
func (s *FaultSpec) Check(points []lab.Point) error {
	m := s.Match
	for _, p := range []string{m.Op, m.Component, m.Node, m.Volume, m.Namespace, m.Name} {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	if err := s.checkOp(points); err != nil {
		return err
	}
	if s.Delay != nil && s.Action != lab.Delay {
		return fmt.Errorf("delay is of action delay, not of %s", s.Action)
	}
	if s.RestartAfter != nil && s.Action != lab.Kill {
		return fmt.Errorf("restartAfter is of action kill, not of %s", s.Action)
	}
	switch s.Action {
	case lab.Delay:
		if span(s.Delay) <= 0 {
			return errors.New("action delay needs a positive delay: 500ms")
		}
	case lab.Fail:
		if m.Call == lab.KindPoint {
			return errors.New("a point cannot fail: use delay, pause or kill")
		}
		return s.checkCode()
	case lab.LateOK, lab.Lost:
		if m.Call == lab.KindPoint {
			return fmt.Errorf("action %s is of calls, and a point is none: use delay, pause or kill", s.Action)
		}
		if s.Code != "" && s.Action == lab.LateOK && m.Call == lab.KindCSI {
			return s.checkCode()
		}
	case lab.Kill:
		if m.Call != lab.KindPoint && m.Component == "" {
			return fmt.Errorf("action kill of a %s call kills the component that makes it: say which one may die; or give a point (call: point)", m.Call)
		}
	case lab.Cut:
		if m.Component == "" {
			return errors.New("action cut needs a component: kubelet, driver, provisioner, attacher, resizer, controllers ...")
		}
		if m.Call != lab.KindAPI && m.Call != lab.KindCloud || m.Op != "" || s.Skip+s.Times+s.Percent > 0 {
			return errors.New("action cut takes all of a component's network away: call api, and neither op, skip, times nor percent")
		}
	case lab.Stale:
		if m.Component == "" || m.Call != lab.KindAPI || m.Op != "*" && !strings.HasPrefix(m.Op, "watch ") {
			return errors.New("action stale holds up a component's watch: call api, a component, and an op such as \"watch pods\"")
		}
	}
	if s.Code != "" && s.Action != lab.Fail && !(s.Action == lab.LateOK && m.Call == lab.KindCSI) {
		return fmt.Errorf("code is of action fail, and of late-ok for csi; action %s of %s has none", s.Action, m.Call)
	}
	return nil
}

// checkOp looks for points and methods that are not there.
func (s *FaultSpec) checkOp(points []lab.Point) error {
	op := s.Match.Op
	switch s.Match.Call {
	case lab.KindPoint:
		var names []string
		for _, p := range points {
			names = append(names, p.String())
		}
		if op != "" && !matchesAny(op, names) {
			return fmt.Errorf("no point is called %q; %s", op, suggest(op, names, "\"drydock lab points\" lists them"))
		}
	case lab.KindCSI:
		// Drivers may serve more than the specification has, so a pattern is believed.
		if methods := lab.CSIMethods(); op != "" && !strings.ContainsAny(op, "*?[") && !slices.Contains(methods, op) {
			return fmt.Errorf("the CSI specification has no method %q; %s", op, suggest(op, methods, "a pattern with * is taken as it is"))
		}
	}
	return nil
}

func matchesAny(pattern string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x01"), strings.ReplaceAll(n, "/", "\x01"))
		return ok || pattern == n
	})
}

func (s *FaultSpec) checkCode() error {
	c := s.Code
	number, err := strconv.Atoi(c)
	status := err == nil && number >= 400 && number <= 599
	switch s.Match.Call {
	case lab.KindCSI:
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			if c == "" || strings.EqualFold(strings.ReplaceAll(c, "_", ""), code.String()) || strings.EqualFold(c, "cancelled") {
				return nil
			}
		}
		return fmt.Errorf("code %q is no gRPC code: Internal, Unavailable, InvalidArgument, ResourceExhausted, DeadlineExceeded ...", c)
	case lab.KindAPI:
		if c != "" && !status {
			return fmt.Errorf("code %q is no HTTP status of an error: 500, 503, 409 ...", c)
		}
	case lab.KindCloud:
		if c != "" && !status && !slices.Contains(cloudCodes, c) {
			return fmt.Errorf("code %q is no HTTP status of an error and none of %s", c, strings.Join(cloudCodes, ", "))
		}
	case lab.KindKernel:
		if c != "" && (!strings.HasPrefix(c, "E") || strings.ToUpper(c) != c) {
			return fmt.Errorf("code %q is no errno: EIO, ENOSPC, EBUSY ...", c)
		}
	}
	return nil
}

// Rule is the fault as the laboratory's tap takes it.
func (f *Fault) Rule() lab.Rule {
	m, s := f.Spec.Match, f.Spec
	return lab.Rule{
		ID: f.Name, Kind: m.Call, Op: m.Op, Component: m.Component, Node: m.Node, Volume: m.Volume, Namespace: m.Namespace, Name: m.Name,
		Action: s.Action, Code: s.Code, Message: s.Message, Delay: span(s.Delay), Skip: s.Skip, Times: s.Times, Percent: s.Percent, Seed: s.Seed,
		Seen: f.Status.Seen, Fired: f.Status.Fired,
	}
}

// Check refuses what no cluster can carry out.
func (s *NodeFaultSpec) Check() error {
	switch {
	case s.Delay != nil && s.Action != SlowAPI:
		return fmt.Errorf("delay is of SlowAPI, not of %s", s.Action)
	case s.Skew != nil && s.Action != ClockSkewed:
		return fmt.Errorf("skew is of ClockSkewed, not of %s", s.Action)
	case s.Action == ClockSkewed && span(s.Skew) == 0:
		return errors.New("ClockSkewed needs a skew: 5m, or -10m for a clock that is late")
	case s.Action == SlowAPI && s.Delay != nil && s.Delay.Duration <= 0:
		return errors.New("SlowAPI needs a positive delay")
	}
	return nil
}

func span(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
