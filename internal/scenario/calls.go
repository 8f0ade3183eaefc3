package scenario

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"drydock.dev/drydock/internal/lab"
)

// options reads KEY=VALUE arguments, of which only the named keys are allowed.
func options(args []string, keys ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		known := false
		for _, key := range keys {
			known = known || k == key
		}
		if !ok || !known {
			return nil, fmt.Errorf("%q is not one of %s, with a value", a, strings.Join(keys, "=, ")+"=")
		}
		out[k] = v
	}
	return out, nil
}

// calls are the ended CSI calls of a method that fit the options. A name in lower case is not a CSI
// method's but that of a controller's own work on the record: attach, detach, unwanted.
func (s *story) calls(method string, o map[string]string) []lab.Span {
	var out []lab.Span
	for _, sp := range s.world.Lab().Timeline.Spans() {
		if _, csi := sp.Attrs["rpc.method"]; !csi && (method == "" || strings.ToLower(method) != method) || sp.End.IsZero() {
			continue
		}
		if fits(method, sp.Op) && fits(o["code"], sp.Code) && fits(o["node"], sp.Node) && fits(o["volume"], sp.Volume) {
			out = append(out, sp)
		}
	}
	return out
}

func fits(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return pattern == "" || err == nil && ok
}

func (s *story) waitCall(args []string) error {
	o, err := options(args[1:], "code", "node", "volume", "count")
	if err != nil {
		return err
	}
	want := 1
	if o["count"] != "" {
		if want, err = strconv.Atoi(o["count"]); err != nil {
			return err
		}
	}
	ctx, cancel := s.limit()
	defer cancel()
	return s.onTimeline(ctx, func() error {
		if n := len(s.calls(args[0], o)); n < want {
			return notSof("%d such calls have ended, not %d", n, want)
		}
		return nil
	})
}

// onTimeline waits until done gives nil, looking again whenever the timeline changes.
func (s *story) onTimeline(ctx context.Context, done func() error) error {
	t := s.world.Lab().Timeline
	for {
		_, sub := t.Subscribe(1024)
		for open := true; open; {
			err := done()
			if err == nil {
				sub.Close()
				return nil
			}
			select {
			case _, open = <-sub.C: // a subscription that lagged is replaced
			case <-ctx.Done():
				sub.Close()
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		}
	}
}

func (s *story) expectCalls(args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	want, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	o, err := options(args[3:], "code", "node", "volume")
	if err != nil {
		return err
	}
	n := len(s.calls(args[0], o))
	ok, err := compare(n, args[1], want)
	if err != nil {
		return err
	}
	if !ok {
		return notSof("there were %d", n)
	}
	return nil
}

func compare(a int, op string, b int) (bool, error) {
	switch op {
	case "==":
		return a == b, nil
	case "<":
		return a < b, nil
	case "<=":
		return a <= b, nil
	case ">":
		return a > b, nil
	case ">=":
		return a >= b, nil
	}
	return false, fmt.Errorf("%q is not ==, <, <=, > or >=", op)
}

func (s *story) expectOrder(args []string) error {
	var before lab.Span
	for i, method := range args {
		c := s.calls(method, map[string]string{"code": "OK"})
		if len(c) == 0 {
			return notSof("no %s succeeded", method)
		}
		if i > 0 && c[0].Start.Before(before.End) {
			return notSof("%s began %s before %s had ended", method, before.End.Sub(c[0].Start), args[i-1])
		}
		before = c[0]
	}
	return nil
}

func (s *story) fault(_ *testscript.TestScript, args []string) error {
	if len(args) == 2 {
		h := s.faults[args[1]]
		if h == nil {
			return fmt.Errorf("there is no fault %q", args[1])
		}
		switch args[0] {
		case "release":
			h.Release()
			return nil
		case "remove":
			h.Remove()
			return nil
		}
	}
	if len(args) < 4 {
		return errUsage
	}
	name := args[0]
	if s.faults[name] != nil {
		return fmt.Errorf("fault %q exists", name)
	}
	rule, err := parseRule(args[1:])
	if err != nil {
		return err
	}
	h, err := s.world.Lab().Faults.Add(rule)
	if err != nil {
		return err
	}
	s.faults[name] = h
	return nil
}

// parseRule reads KIND OP ACTION [KEY=VALUE...].
func parseRule(args []string) (lab.Rule, error) {
	o, err := options(args[3:], "component", "node", "volume", "namespace", "name", "code", "message", "delay", "skip", "times")
	if err != nil {
		return lab.Rule{}, err
	}
	r := lab.Rule{Kind: lab.Kind(args[0]), Op: args[1], Action: lab.Action(args[2]), Component: o["component"], Node: o["node"], Volume: o["volume"],
		Namespace: o["namespace"], Name: o["name"], Code: o["code"], Message: o["message"]}
	switch r.Kind {
	case lab.KindCSI, lab.KindCloud, lab.KindAPI, lab.KindKernel, lab.KindPoint:
	default:
		return r, fmt.Errorf("kind %q is not csi, cloud, api, kernel or point", r.Kind)
	}
	if o["delay"] != "" {
		if r.Delay, err = time.ParseDuration(o["delay"]); err != nil {
			return r, err
		}
	}
	for key, to := range map[string]*int{"skip": &r.Skip, "times": &r.Times} {
		if o[key] != "" {
			if *to, err = strconv.Atoi(o[key]); err != nil {
				return r, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return r, nil
}

func (s *story) waitFault(args []string) error {
	h := s.faults[args[0]]
	if h == nil {
		return fmt.Errorf("there is no fault %q", args[0])
	}
	n := 1
	if len(args) > 1 {
		var err error
		if n, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	ctx, cancel := s.limit()
	defer cancel()
	return h.WaitFired(ctx, n)
}

func (s *story) expectFault(name string) error {
	h := s.faults[name]
	if h == nil {
		return fmt.Errorf("there is no fault %q", name)
	}
	if h.Fired() == 0 {
		return notSof("it never fired")
	}
	return nil
}
