package peer

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

var only = flag.String("corpus", "", "play only the scenarios whose title contains this")

const table = "../../../apiserverlite/server/testdata/corpus"

// TestCorpusIsConfirmed plays every row of the corpus to upstream's server and to ours. What the row expects must hold
// of both, and the answers must be the same in everything else too, but for what no two servers agree on
// (uids, times, tokens, the numbers of revisions but not their order). A row that is answered otherwise says why
// with "alone:"; a row that says so and is answered the same fails the test as well.
func TestCorpusIsConfirmed(t *testing.T) {
	scenarios, err := corpus.Load(table)
	if err != nil {
		t.Fatal(err)
	}
	p := Start(t, Options{Kinds: true, CBOR: true})
	w := newWorld(t, p)
	rows, same, explained := 0, 0, 0
	for _, s := range scenarios {
		if !strings.Contains(s.Title, *only) {
			continue
		}
		for _, run := range s.Runs() {
			t.Run(run.Name, func(t *testing.T) {
				theirs, ours := w.fresh(t)
				p := play{run: run, theirs: playing{to: theirs, vars: maps.Clone(run.Vars)}, ours: playing{to: ours, vars: maps.Clone(run.Vars)}, pairs: newPairs()}
				for _, r := range run.Rows {
					rows++
					alone, wrong := r.Alone(run), w.compare(t, &p, r)
					switch {
					case alone != "":
						explained++
						if len(wrong) == 0 {
							t.Errorf("%s:%d: %s: is answered the same, and said to be answered otherwise: %s", run.File, r.Line, r.Title, alone)
						}
					case len(wrong) > 0:
						t.Errorf("%s:%d: %s: %s %s\n%s", run.File, r.Line, r.Title, r.Method, r.Path, strings.Join(wrong, "\n"))
					default:
						same++
					}
				}
			})
		}
	}
	t.Logf("%d requests to both servers: %d answered the same, %d otherwise with a reason", rows, same, explained)
}

// play is one run on both servers.
type play struct {
	run          corpus.Run
	theirs, ours playing
	pairs        pairs
}

// playing is one server's side of it.
type playing struct {
	to   corpus.Server
	vars map[string]string
	// generated matches the names that a generateName of the run has led to.
	generated *regexp.Regexp
}

var generateName = regexp.MustCompile(`"generateName": ?"([^"]+)"`)

// expects notes what names the answer may have.
func (p *playing) expects(r corpus.Row) {
	if m := generateName.FindStringSubmatch(r.Body()); m != nil {
		p.generated = regexp.MustCompile("(" + regexp.QuoteMeta(m[1]) + ")[a-z0-9]{5}")
	}
}

// compare tells the differences: of upstream's answer from what the row expects, and of the two answers.
func (w *world) compare(t *testing.T, p *play, r corpus.Row) (wrong []string) {
	t.Helper()
	p.theirs.expects(r)
	p.ours.expects(r)
	a, failed := p.theirs.to.Send(t.Context(), r, p.theirs.vars)
	for deadline := time.Now().Add(time.Minute); failed == nil && starting(a) && time.Now().Before(deadline); {
		time.Sleep(informerTime)
		a, failed = p.theirs.to.Send(t.Context(), r, p.theirs.vars)
	}
	if failed == nil {
		w.settle(t, p.run, r, r.Fill(p.theirs.vars), a)
	}
	b, err := p.ours.to.Send(t.Context(), r, p.ours.vars)
	if err != nil {
		t.Fatalf("%s:%d: %v", p.run.File, r.Line, err)
	}
	for _, err := range r.Check(p.run.File, b, p.ours.vars) {
		t.Errorf("ours: %v\nof: %s", err, short(b.Raw))
	}
	if failed != nil {
		return []string{"upstream: " + failed.Error()}
	}
	for _, err := range r.Check(p.run.File, a, p.theirs.vars) {
		wrong = append(wrong, "upstream's: "+err.Error())
	}
	wrong = append(wrong, p.pairs.differences(p.theirs.plain(a), p.ours.plain(b))...)
	if writesDefinition(r.Method, r.Fill(p.theirs.vars)) {
		p.pairs.forget(a, b)
	}
	if len(wrong) > 0 {
		wrong = append(wrong, "upstream's answer: "+short(a.Raw), "ours:              "+short(b.Raw))
	}
	return wrong
}

// starting tells of a list that upstream's cache is not ready for, as it says itself.
func starting(a *corpus.Answer) bool {
	return a.Code == http.StatusTooManyRequests && strings.Contains(a.Raw, "storage is (re)initializing")
}

func short(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 1500 {
		return s[:1500] + "..."
	}
	return s
}

// client speaks to the peer without compression of its own.
func (p *Peer) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(p.CA))
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableCompression: true}}
}
