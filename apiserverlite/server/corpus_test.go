package server

import (
	"flag"
	"maps"
	"net/http"
	"strings"
	"testing"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

var corpusOnly = flag.String("corpus", "", "run only the scenarios whose title contains this")

// corpusLeast is what the issue asks for. Rows of a scenario with several "with" lines count once for each.
const corpusLeast = 400

// TestCorpus sends every request of the corpus to a server in this process.
func TestCorpus(t *testing.T) {
	scenarios, err := corpus.Load("testdata/corpus")
	if err != nil {
		t.Fatal(err)
	}
	rows, upstream, alone := 0, 0, 0
	for _, s := range scenarios {
		if *corpusOnly != "" && !strings.Contains(s.Title, *corpusOnly) {
			continue
		}
		for _, run := range s.Runs() {
			for _, r := range s.Rows {
				if rows++; r.Upstream != "" {
					upstream++
				}
				if r.Alone(run) != "" {
					alone++
				}
			}
			t.Run(run.Name, func(t *testing.T) { converse(t, run) })
		}
	}
	t.Logf("%d requests; upstream's server answers %d of them otherwise, with a reason beside each; of %d it is said where in its code the answer stands", rows, alone, upstream)
	if *corpusOnly == "" && rows < corpusLeast {
		t.Errorf("the corpus has %d requests, it should have at least %d", rows, corpusLeast)
	}
}

// converse sends the rows of a scenario one after the other. It goes on after a wrong answer, so that one run shows all.
func converse(t *testing.T, run corpus.Run) {
	t.Parallel()
	f := startReal(t, "")
	f.http.Client().Transport.(*http.Transport).DisableCompression = true // but where a row asks for it
	to := corpus.Server{URL: f.http.URL, Client: f.http.Client()}
	vars := maps.Clone(run.Vars)
	for _, r := range run.Rows {
		a, err := to.Send(t.Context(), r, vars)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", run.File, r.Line, r.Title, err)
		}
		if wrong := r.Check(run.File, a, vars); len(wrong) > 0 {
			for _, err := range wrong {
				t.Error(err)
			}
			t.Logf("of:\n%s", a.Raw)
		}
	}
}
