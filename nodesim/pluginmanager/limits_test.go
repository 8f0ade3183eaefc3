package pluginmanager

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/lab"
)

// theirs is a plugin without a socket, so that time can be virtual: a test says how it answers.
type theirs struct {
	notify func(ctx context.Context) error // nil: an answer at once
	told   []*registration.RegistrationStatus

	mu    sync.Mutex                      // virtual time orders nothing
	info  func(ctx context.Context) error // guarded by mu: nil: an answer at once
	began time.Time                       // guarded by mu
	asked []time.Duration                 // guarded by mu: when each try came, since the beginning
}

// answer is how it answers from now on.
func (p *theirs) answer(info func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
}

// again counts anew.
func (p *theirs) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.asked = time.Now(), nil
}

func (p *theirs) tries() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *theirs) GetInfo(ctx context.Context, _ *registration.InfoRequest, _ ...grpc.CallOption) (*registration.PluginInfo, error) {
	p.mu.Lock()
	p.asked = append(p.asked, time.Since(p.began))
	info := p.info
	p.mu.Unlock()
	if info != nil {
		if err := info(ctx); err != nil {
			return nil, err
		}
	}
	return &registration.PluginInfo{Type: "any", Name: "a", SupportedVersions: []string{"1.0.0"}}, nil
}

func (p *theirs) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus, _ ...grpc.CallOption) (*registration.RegistrationStatusResponse, error) {
	p.told = append(p.told, s)
	if p.notify != nil {
		if err := p.notify(ctx); err != nil {
			return nil, err
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Close ends nothing.
func (p *theirs) Close() error { return nil }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// record is a Handler that records.
type record struct {
	calls   []string
	refused error // by Validate
}

func (r *record) Validate(string, string, []string) error {
	r.calls = append(r.calls, "validate")
	return r.refused
}

func (r *record) Register(context.Context, string, string, []string) error {
	r.calls = append(r.calls, "register")
	return nil
}

func (r *record) Deregister(context.Context, string, string) {
	r.calls = append(r.calls, "deregister")
}

// meet returns a manager on virtual time that reaches p, or what is at the path if p is nil.
func meet(p *theirs, h Handler) *Manager {
	m := New(Config{Handlers: map[string]Handler{"any": h}, Lab: lab.New(lab.Options{}), Log: zerolog.Nop()})
	if p != nil {
		p.again()
		m.connect = func(context.Context, string) (registration.RegistrationClient, io.Closer, error) { return p, p, nil }
	}
	return m
}

func TestRegistrationTimeLimits(t *testing.T) {
	refusal := errors.New("not this one")
	for name, c := range map[string]struct {
		plugin  *theirs
		refused error
		limit   time.Duration
		want    string
		calls   string
	}{
		"dial":    {nil, nil, 10 * time.Second, "dial failed at socket", ""},
		"GetInfo": {&theirs{info: hang}, nil, time.Second, "failed to get plugin info using RPC GetInfo at socket", ""},
		"NotifyRegistrationStatus": {&theirs{notify: hang}, nil, 5 * time.Second, "failed to send registration status at socket",
			"validate register deregister"},
		"NotifyRegistrationStatus of a refusal": {&theirs{notify: hang}, refusal, 5 * time.Second,
			"plugin validation failed with err: not this one (and the plugin could not be told: ", "validate"},
	} {
		t.Run(name, func(t *testing.T) {
			path := deserted(t)
			synctest.Test(t, func(t *testing.T) {
				h := &record{refused: c.refused}
				m := meet(c.plugin, h)
				began := time.Now()
				_, err := m.register(t.Context(), &socket{path: path})
				if took := time.Since(began); took != c.limit {
					t.Errorf("given up after %s, want %s", took, c.limit)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one with %q", err, c.want)
				}
				if got := strings.Join(h.calls, " "); got != c.calls {
					t.Errorf("the handler's calls: %s, want %s", got, c.calls)
				}
			})
		})
	}
}

// deserted is a socket on which nobody listens any more.
func deserted(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return l.Addr().String()
}

// pass lets time go by, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFailedRegistrationIsTriedAgain: after 500 ms, then twice as long each time up to 2m2s, always from
// the end of the failed try; and what was registered once begins anew.
func TestFailedRegistrationIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, h := &theirs{info: hang}, &record{}
		m := meet(p, h)
		const answer = infoTimeout // when the manager gives up
		want := []time.Duration{0}
		next := func(pause time.Duration) { want = append(want, want[len(want)-1]+answer+pause) }
		for _, pause := range []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122000, 122000} {
			next(pause * time.Millisecond)
		}
		m.set(t.Context(), "/a", 1)
		pass(want[len(want)-1])
		p.answer(nil)
		pass(answer + maxPause)
		next(maxPause)
		pass(time.Hour) // registered: nothing more is asked
		if !slices.Equal(p.tries(), want) {
			t.Errorf("tries at %v, want %v", p.tries(), want)
		}
		if len(p.told) != 1 || !p.told[0].PluginRegistered {
			t.Errorf("told %v", p.told)
		}

		// A socket made anew: the old registration goes first, and the pauses are short again.
		p.again()
		p.answer(hang)
		m.set(t.Context(), "/a", 2)
		pass(2 * time.Second)
		want = []time.Duration{0, answer + firstPause}
		if !slices.Equal(p.tries(), want) {
			t.Errorf("tries of the new socket at %v, want %v", p.tries(), want)
		}
		if got := strings.Join(h.calls, " "); got != "validate register deregister" {
			t.Errorf("the handler's calls: %s", got)
		}

		// In a pause the socket goes, and another one comes: it does not wait for the pause.
		pass(time.Second)
		m.set(t.Context(), "/a", 0)
		synctest.Wait()
		m.set(t.Context(), "/a", 3)
		pass(answer + firstPause/2)
		if want = append(want, 3*time.Second); !slices.Equal(p.tries(), want) {
			t.Errorf("tries of the third socket at %v, want %v", p.tries(), want)
		}

		// With the socket the tries end.
		m.set(t.Context(), "/a", 0)
		m.wg.Wait()
		if len(p.tries()) != len(want) || len(m.sockets) != 0 {
			t.Errorf("tries at %v, sockets %v", p.tries(), m.sockets)
		}
	})
}
