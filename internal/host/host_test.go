package host

import (
	"strings"
	"testing"
)

func TestDecide(t *testing.T) {
	able := Report{Findings: []Finding{{Name: "root", OK: true, Needed: true}, {Name: "mkfs.xfs"}}}
	unable := Report{Findings: []Finding{{Name: "root", Needed: true, Detail: "user id 1000", Means: "run as root"}}}
	for _, c := range []struct {
		name   string
		r      Report
		wish   Mode
		mode   Mode
		reason string
		err    string
	}{
		{"able, auto", able, Auto, Loop, "real", ""},
		{"able, sim", able, Sim, Sim, "as asked", ""},
		{"able, loop", able, Loop, Loop, "real", ""},
		{"unable, auto", unable, Auto, Sim, "user id 1000", ""},
		{"unable, loop", unable, Loop, "", "", "run as root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mode, reason, err := c.r.Decide(c.wish)
			if mode != c.mode || !strings.Contains(reason, c.reason) {
				t.Errorf("got %q, %q", mode, reason)
			}
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

func TestParseMode(t *testing.T) {
	if _, err := ParseMode("real"); err == nil || !strings.Contains(err.Error(), "auto, loop or sim") {
		t.Errorf("got %v", err)
	}
}
