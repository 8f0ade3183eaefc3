package api

import (
	"net/http"
	"strings"
	"time"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

// faultObject is a rule of the lab on requests to this cloud, or on the kernel
// operations behind them.
type faultObject struct {
	ID      string     `json:"id,omitempty"`
	Kind    lab.Kind   `json:"kind"`    // cloud (requests, the default) or kernel (loop-attach, link, copy, ...)
	Op      string     `json:"op"`      // "POST /v2/volumes/{id}/actions", a pattern; empty is every one
	Caller  string     `json:"caller"`  // first word of the user agent, a pattern
	Volume  string     `json:"volume"`  // its name, a pattern
	Action  lab.Action `json:"action"`  // fail, delay, late-ok, lost, hang, pause
	Code    string     `json:"code"`    // of fail: a status, errored, 422-pending, 403-capacity; an errno of a kernel operation
	Message string     `json:"message"` // in place of the usual one
	Delay   string     `json:"delay"`   // of delay
	Skip    int        `json:"skip"`    // so many pass first
	Times   int        `json:"times"`   // zero is forever
	Fired   int        `json:"fired"`
}

func faultView(h *lab.Handle) faultObject {
	r := h.Rule
	o := faultObject{ID: h.ID, Kind: r.Kind, Op: r.Op, Caller: r.Component, Volume: r.Volume, Action: r.Action, Code: r.Code, Message: r.Message,
		Skip: r.Skip, Times: r.Times, Fired: h.Fired()}
	if r.Delay > 0 {
		o.Delay = r.Delay.String()
	}
	return o
}

// faults lists the rules that are about this cloud; a cluster's lab has others.
func (s *server) faults() (out []*lab.Handle) {
	for _, h := range s.cloud.Lab().Faults.List() {
		if h.Rule.Kind == lab.KindCloud || h.Rule.Kind == lab.KindKernel && h.Rule.Component == "cloud" {
			out = append(out, h)
		}
	}
	return out
}

func (s *server) listFaults(*call) (int, any, error) {
	return 0, map[string]any{"faults": each(s.faults(), faultView)}, nil
}

func (s *server) addFault(c *call) (int, any, error) {
	var in faultObject
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	r := lab.Rule{Kind: in.Kind, Op: in.Op, Component: in.Caller, Volume: in.Volume, Action: in.Action, Code: in.Code, Message: in.Message, Skip: in.Skip, Times: in.Times}
	switch in.Kind {
	case "":
		r.Kind = lab.KindCloud
	case lab.KindCloud:
	case lab.KindKernel:
		r.Component = "cloud"
	default:
		return 0, nil, invalid("kind must be cloud or kernel, not " + string(in.Kind))
	}
	if in.Action == lab.Kill {
		return 0, nil, invalid("a cloud alone cannot be killed by a rule: nobody would start it again")
	}
	if in.Delay != "" {
		d, err := time.ParseDuration(in.Delay)
		if err != nil {
			return 0, nil, invalid("delay: " + err.Error())
		}
		r.Delay = d
	}
	h, err := s.cloud.Lab().Faults.Add(r)
	if err != nil {
		return 0, nil, invalid(err.Error())
	}
	return http.StatusCreated, map[string]any{"fault": faultView(h)}, nil
}

func invalid(text string) error { return &fakecloud.Error{Kind: fakecloud.Invalid, Text: text} }

func (s *server) fault(id string) (*lab.Handle, error) {
	for _, h := range s.faults() {
		if h.ID == id {
			return h, nil
		}
	}
	return nil, &statusError{status: http.StatusNotFound}
}

// removeFault takes a rule out of force and lets go what it holds.
func (s *server) removeFault(c *call) (int, any, error) {
	h, err := s.fault(c.param("fault"))
	if err != nil {
		return 0, nil, err
	}
	h.Remove()
	return http.StatusNoContent, nil, nil
}

// releaseFault lets go what a rule holds; it stays in force.
func (s *server) releaseFault(c *call) (int, any, error) {
	h, err := s.fault(c.param("fault"))
	if err != nil {
		return 0, nil, err
	}
	h.Release()
	return 0, map[string]any{"fault": faultView(h)}, nil
}

func (s *server) clearFaults(*call) (int, any, error) {
	for _, h := range s.faults() {
		h.Remove()
	}
	return http.StatusNoContent, nil, nil
}

// exempt tells whether a route is above the rules: who looks on, and who takes a rule
// away again, must not be caught by it.
func exempt(pattern string) bool {
	own, ok := strings.CutPrefix(pattern, ours)
	return ok && !strings.HasPrefix(own, "/volumes/") && !strings.HasPrefix(own, "/snapshots/")
}
