package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func raw(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// TestHubModel: whatever is published and whenever a client reads, the client ends
// up with the server's objects, and with each log entry once, in order, or counted.
func TestHubModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		limits := hubLimits{ring: rapid.IntRange(4, 40).Draw(r, "ring"), logs: rapid.IntRange(1, 10).Draw(r, "logs"), lag: 1000, tail: 5}
		h := newHub(limits)
		model := map[string]string{}
		type client struct {
			rev     uint64
			objects map[string]string
			logs    []int
		}
		logs := 0
		join := func() *client {
			s := h.snapshot()
			c := &client{rev: s.Rev, objects: map[string]string{}}
			for _, o := range s.Objects {
				var v struct{ Key, V string }
				json.Unmarshal(o, &v)
				c.objects[v.Key] = v.V
			}
			c.logs = []int{logs}
			if n := len(s.Log); n > 0 {
				var last int
				json.Unmarshal(s.Log[n-1], &last)
				if last != logs {
					r.Fatalf("the snapshot's latest log entry is %d, want %d", last, logs)
				}
			}
			return c
		}
		clients := []*client{join()}
		read := func(c *client) {
			b, lost := h.read(c.rev)
			if lost != "" {
				if lost != resetCompacted || h.rev-c.rev <= uint64(limits.ring) {
					r.Fatalf("reset %q at %d behind with a ring of %d", lost, h.rev-c.rev, limits.ring)
				}
				*c = *join()
				return
			}
			if b.Rev < c.rev {
				r.Fatalf("revision went from %d to %d", c.rev, b.Rev)
			}
			c.rev = b.Rev
			for _, o := range b.Put {
				var v struct{ Key, V string }
				json.Unmarshal(o, &v)
				c.objects[v.Key] = v.V
			}
			for _, k := range b.Del {
				delete(c.objects, k)
			}
			if !maps.Equal(c.objects, model) {
				r.Fatalf("client has %v, the server %v", c.objects, model)
			}
			n := c.logs[len(c.logs)-1] + b.LogDropped // entries are dropped oldest first
			for _, l := range b.Log {
				var got int
				json.Unmarshal(l, &got)
				if n++; got != n {
					r.Fatalf("log entry %d came, want %d", got, n)
				}
				c.logs = append(c.logs, got)
			}
			if n != logs {
				r.Fatalf("the client knows of %d log entries, the server made %d", n, logs)
			}
			c.logs = []int{n}
		}
		r.Repeat(map[string]func(*rapid.T){
			"publish": func(r *rapid.T) {
				put, del, entries := map[string]json.RawMessage{}, []string(nil), []json.RawMessage(nil)
				for range rapid.IntRange(0, 4).Draw(r, "puts") {
					k, v := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "key"), rapid.StringN(0, 1, -1).Draw(r, "value")
					put[k] = raw(map[string]string{"Key": k, "V": v})
					model[k] = v
				}
				if len(put) == 0 && rapid.Bool().Draw(r, "delete") {
					k := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "deleted")
					del = append(del, k)
					delete(model, k)
				}
				for range rapid.IntRange(0, 3).Draw(r, "log") {
					logs++
					entries = append(entries, raw(logs))
				}
				h.publish(put, del, entries)
			},
			"join": func(r *rapid.T) {
				if len(clients) < 5 {
					clients = append(clients, join())
				}
			},
			"read": func(r *rapid.T) { read(rapid.SampledFrom(clients).Draw(r, "client")) },
			"": func(r *rapid.T) {
				if len(h.ring) > limits.ring {
					r.Fatalf("ring of %d", len(h.ring))
				}
				kept := 0
				for _, c := range h.ring {
					if c.log != nil {
						kept++
					}
				}
				if kept != h.logs || kept > limits.logs {
					r.Fatalf("%d log entries kept, counted %d, limit %d", kept, h.logs, limits.logs)
				}
			},
		})
		for _, c := range clients {
			read(c)
		}
	})
}

func TestHubPutThatChangesNothingIsNoRevision(t *testing.T) {
	h := newHub(hubLimits{})
	h.publish(map[string]json.RawMessage{"a": raw("1")}, nil, nil)
	rev := h.rev
	h.publish(map[string]json.RawMessage{"a": raw("1")}, []string{"never there"}, nil)
	if h.rev != rev {
		t.Errorf("revision %d, want %d", h.rev, rev)
	}
}

func TestHubPositions(t *testing.T) {
	h := newHub(hubLimits{})
	for _, bad := range []string{"", ".", "x.1", h.epoch, h.epoch + ".x", h.epoch + ".-1", newHub(hubLimits{}).position(1)} {
		if _, ok := h.parse(bad); ok {
			t.Errorf("position %q was taken", bad)
		}
	}
	if rev, ok := h.parse(h.position(42)); !ok || rev != 42 {
		t.Errorf("got %d %v", rev, ok)
	}
	if _, lost := h.read(7); lost != resetEpoch {
		t.Errorf("a position of the future gave %q", lost)
	}
}

func BenchmarkHubPublish(b *testing.B) {
	h := newHub(hubLimits{})
	for i := 0; b.Loop(); i++ {
		h.publish(map[string]json.RawMessage{fmt.Sprint("volume/", i%10000): raw(i)}, nil, []json.RawMessage{raw(i)})
	}
}
