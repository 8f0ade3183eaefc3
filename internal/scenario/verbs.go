package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (s *story) apply(ts *testscript.TestScript, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	ctx, cancel := s.limit()
	defer cancel()
	for _, file := range args {
		text := strings.ReplaceAll(ts.ReadFile(file), "csi.drydock.dev", s.world.Driver())
		if err := s.objects.apply(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) delete(_ *testscript.TestScript, args []string) error {
	var now, nowait bool
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-now":
			now = true
		case "-nowait":
			nowait = true
		default:
			return errUsage
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return errUsage
	}
	ctx, cancel := s.limit()
	defer cancel()
	for _, a := range args {
		r, err := s.objects.find(a)
		if err != nil {
			return err
		}
		o := metav1.DeleteOptions{}
		if now {
			o.GracePeriodSeconds = new(int64)
		}
		if err := s.objects.in(r).Delete(ctx, r.name, o); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if nowait {
		return nil
	}
	gone, _ := parseCondition("gone")
	for _, a := range args {
		r, err := s.objects.find(a)
		if err != nil {
			return err
		}
		if err := s.objects.until(ctx, r, gone); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) wait(_ *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	switch args[0] {
	case "event":
		return s.waitEvent(args[1:])
	case "call":
		return s.waitCall(args[1:])
	case "fault":
		return s.waitFault(args[1:])
	case "page":
		return s.waitPage(args[1:])
	}
	if len(args) != 2 {
		return errUsage
	}
	r, err := s.objects.find(args[0])
	if err != nil {
		return err
	}
	c, err := parseCondition(args[1])
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	return s.objects.until(ctx, r, c)
}

func (s *story) expect(args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	switch args[0] {
	case "calls":
		return s.expectCalls(args[1:])
	case "order":
		return s.expectOrder(args[1:])
	case "file":
		return s.expectFile(args[1:])
	case "stats":
		return s.expectStats(args[1:])
	}
	if len(args) != 2 {
		return errUsage
	}
	if args[0] == "fault" {
		return s.expectFault(args[1])
	}
	r, err := s.objects.find(args[0])
	if err != nil {
		return err
	}
	c, err := parseCondition(args[1])
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	o, err := s.objects.get(ctx, r)
	if err != nil {
		return err
	}
	return c(o)
}

func (s *story) set(ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	r, err := s.objects.find(args[1])
	if err != nil {
		return err
	}
	p, err := parsePath(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	o, err := s.objects.get(ctx, r)
	if err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("%s does not exist", r)
	}
	v, err := p(o)
	if err != nil {
		return err
	}
	if v == "" {
		return fmt.Errorf("%s of %s is empty", args[2], r)
	}
	ts.Setenv(args[0], v)
	return nil
}

// waitEvent waits for an event about an object.
func (s *story) waitEvent(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errUsage
	}
	about, err := s.objects.find(args[1])
	if err != nil {
		return err
	}
	text := ""
	if len(args) == 3 {
		text = args[2]
	}
	events, err := s.objects.find("events/any")
	if err != nil {
		return err
	}
	events.namespace = about.namespace
	if events.namespace == "" {
		events.namespace = metav1.NamespaceDefault
	}
	ctx, cancel := s.limit()
	defer cancel()
	var seen []string
	matches := func(o *unstructured.Unstructured) bool {
		reason, _, _ := unstructured.NestedString(o.Object, "reason")
		message := field(o, "message", "note")
		name, _, _ := unstructured.NestedString(o.Object, "involvedObject", "name")
		if name == "" {
			name, _, _ = unstructured.NestedString(o.Object, "regarding", "name")
		}
		if name != about.name {
			return false
		}
		if reason == args[0] && strings.Contains(message, text) {
			return true
		}
		seen = append(seen, reason+": "+message)
		return false
	}
	for {
		list, err := s.objects.in(events).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		seen = nil
		for i := range list.Items {
			if matches(&list.Items[i]) {
				return nil
			}
		}
		w, err := s.objects.in(events).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok && matches(o) {
				w.Stop()
				return nil
			}
		}
		w.Stop()
		if ctx.Err() != nil {
			return fmt.Errorf("no such event; about %s there were: %s", about, strings.Join(seen, "; "))
		}
	}
}

// field is the first of an object's top-level strings that is set.
func field(o *unstructured.Unstructured, names ...string) string {
	for _, n := range names {
		if v, _, _ := unstructured.NestedString(o.Object, n); v != "" {
			return v
		}
	}
	return ""
}

func (s *story) kill(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	return s.world.Kill(args[0])
}

func (s *story) start(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	return s.world.Start(args[0])
}

// advancer is a world whose clock can be moved, for good.
type advancer interface{ Advance(time.Duration) error }

func (s *story) clock(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 || !strings.HasPrefix(args[0], "+") {
		return errUsage
	}
	d, err := time.ParseDuration(args[0][1:])
	if err != nil {
		return err
	}
	c, ok := s.world.(advancer)
	if !ok {
		return errors.New("this cluster's clock cannot be advanced")
	}
	return c.Advance(d)
}

func (s *story) check(_ *testscript.TestScript, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	ctx, cancel := s.limit()
	defer cancel()
	problems, err := s.world.Check(ctx)
	if err != nil {
		return err
	}
	var words []string
	for _, p := range problems {
		words = append(words, p.String())
	}
	if len(words) > 0 {
		return fmt.Errorf("%d problems:\n  %s", len(words), strings.Join(words, "\n  "))
	}
	return nil
}
