package peer

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

var (
	swept = flag.String("swept", "", "sweep only the seeds whose version, kind and name match this")
	every = flag.Int("every", 50, "of so many changes send one; 1 sends all, which takes minutes")
)

// TestSweep changes a valid object of each served kind in one place at a time, as upstream's schemas suggest, and asks both
// servers what they would make of it: as a new object, as an update of the one that is there, and of its status. The whole
// answers must be the same, as in TestCorpusIsConfirmed, or one of the reasons below must hold.
func TestSweep(t *testing.T) {
	p := Start(t, Options{Kinds: true})
	w := newWorld(t, p)
	theirs, ours := w.fresh(t)
	schemas := readSchemas(t, ours)
	maps.Copy(schemas, readSchemas(t, theirs)) // all but that of definitions, which the peer does not publish
	sw := &sweep{world: w, theirs: theirs, ours: ours, changer: changer{schemas: schemas, below: 2}, needed: map[string]int{}}
	sw.must(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "other"}})
	only := regexp.MustCompile(*swept)
	for _, s := range readSeeds(t, schemas) {
		if only.MatchString(s.String()) {
			t.Run(s.String(), func(t *testing.T) { sw.seed(t, s) })
		}
	}
	for _, r := range reasons {
		if sw.needed[r.why] == 0 && *swept == "" && *every == 1 {
			t.Errorf("no answer differs any more because %s", r.why)
		}
	}
	t.Logf("%d answers were the same, %d differ for a reason: %v", sw.same.Load(), sw.explained(), sw.needed)
}

// reason is why some answers differ.
type reason struct {
	why     string
	changes *regexp.Regexp                         // of which seeds, in what, to what
	holds   func(theirs, ours *corpus.Answer) bool // theirs is nil if the connection was cut
}

var reasons = []reason{
	{
		why:     "upstream panics and cuts the connection",
		changes: regexp.MustCompile(`CustomResourceDefinition .*openAPIV3Schema|^batch/v1 Job seed: .*: \.spec\.completions`),
		holds:   func(theirs, ours *corpus.Answer) bool { return theirs == nil && ours.Code < 500 },
	},
	{
		why:     "upstream says 500 of a class that nobody could have",
		changes: regexp.MustCompile(`^v1 Pod .*runtimeClassName`),
		holds:   func(theirs, ours *corpus.Answer) bool { return theirs != nil && theirs.Code == 500 && ours.Code == 403 },
	},
	{
		why:     "what upstream's controllers do a moment later is done here at once: the names of a definition are accepted, and its conditions put right",
		changes: regexp.MustCompile(`CustomResourceDefinition .*: (update: \.spec\.names|status: )`),
		holds:   bothTake,
	},
	{
		why:     "upstream forgets empty things within definitions on their way to its store",
		changes: regexp.MustCompile(`CustomResourceDefinition .*(conversion\.webhook = |\.items = \[\]|additionalItems = |\[0\]\.schema = )`),
		holds:   bothTake,
	},
	{
		why:     "snapshots are read into their Go types here: what is of a wrong type is a bad request, and what is empty is refused as missing",
		changes: regexp.MustCompile(`^(group)?snapshot\.storage\.k8s\.io/`),
		holds:   func(_, ours *corpus.Answer) bool { return ours.Code == 400 || ours.Code == 422 },
	},
	{
		why:     "of snapshots, what is empty or null is not told from what is left out",
		changes: regexp.MustCompile(`^(group)?snapshot\.storage\.k8s\.io/.*(left out|= ""|"":|\{\}|\[\]|= 0|null)`),
		holds:   func(_, ours *corpus.Answer) bool { return ours.Code < 300 },
	},
}

func bothTake(theirs, ours *corpus.Answer) bool {
	return theirs != nil && theirs.Code < 300 && ours.Code < 300
}

type sweep struct {
	changer
	world        *world
	theirs, ours corpus.Server
	same         atomic.Int64
	mu           sync.Mutex
	needed       map[string]int
}

// try is one change that is sent.
type try struct {
	what, method, path string
	object             map[string]any
	ids                pairsOf
	change             change
}

func (w *sweep) seed(t *testing.T, s seed) {
	w.must(t, http.MethodPost, s.collection(), s.object)
	if s.resource.GVK.Kind == "CustomResourceDefinition" {
		w.world.settleDefinition(t, http.MethodPost, "", &corpus.Answer{Object: s.object})
	}
	one := s.collection() + "/" + s.name
	live, ids := w.live(t, s)
	if _, ok := s.resource.Subresources["status"]; ok && s.object["status"] != nil {
		live["status"] = s.object["status"]
		for i, to := range []corpus.Server{w.theirs, w.ours} {
			if a, err := send(t.Context(), to, http.MethodPut, one+"/status", live, ids.of(i)); err != nil || a.Code != http.StatusOK {
				t.Fatalf("status: %v: %s", err, a.Raw)
			}
		}
		live, ids = w.live(t, s)
	}
	top := w.schemas[s.schema]
	var tries []try
	fresh := s.renamed()
	for _, c := range w.changesOf(s, top, s.object) {
		tries = append(tries, try{"create", http.MethodPost, s.collection(), fresh, nil, c})
	}
	for _, c := range w.changesOf(s, top, live) {
		tries = append(tries, try{"update", http.MethodPut, one, live, ids, c})
		if c.path[0] == "status" && s.resource.Subresources["status"].Strategy != nil {
			tries = append(tries, try{"status", http.MethodPut, one + "/status", live, ids, c})
		}
	}
	var wg sync.WaitGroup
	work := make(chan try)
	for range 4 {
		wg.Go(func() {
			for y := range work {
				w.try(t, s, y)
			}
		})
	}
	for i, y := range tries {
		if i%*every == 0 {
			work <- y
		}
	}
	close(work)
	wg.Wait()
}

func (w *sweep) try(t *testing.T, s seed, y try) {
	body := y.change.in(y.object)
	theirs, err := send(t.Context(), w.theirs, y.method, y.path+"?dryRun=All", body, y.ids.of(0))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("%s: %v: upstream: %v", y.what, y.change, err)
		return
	}
	ours, err := send(t.Context(), w.ours, y.method, y.path+"?dryRun=All", body, y.ids.of(1))
	if err != nil {
		t.Errorf("%s: %v: ours: %v", y.what, y.change, err)
		return
	}
	wrong := []string{"  upstream cut the connection"}
	if theirs != nil {
		play := playing{}
		wrong = newPairs().differences(play.plain(theirs), play.plain(ours))
	}
	if len(wrong) == 0 {
		w.same.Add(1)
		return
	}
	name := fmt.Sprintf("%s: %s: %v", s, y.what, y.change)
	for _, r := range reasons {
		if r.changes.MatchString(name) && r.holds(theirs, ours) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.needed[r.why]++
			return
		}
	}
	if theirs != nil {
		wrong = append(wrong, fmt.Sprintf("  upstream %d: %s", theirs.Code, refusal(theirs)))
	}
	t.Errorf("%s: %v\n%s\n  ours     %d: %s", y.what, y.change, strings.Join(wrong, "\n"), ours.Code, refusal(ours))
}

// changesOf leaves out what identifies an object, and of metadata, whose rules are the same for all kinds, all but
// what is said of one object of each kind.
func (w *sweep) changesOf(s seed, top, object map[string]any) []change {
	w.closed = map[string]bool{
		"io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry": true,
		"io.k8s.api.core.v1.PodSpec":                              s.resource.GVK.Kind != "Pod",
	}
	return slices.DeleteFunc(w.changes(top, object), func(c change) bool {
		switch {
		case len(c.path) == 0:
			return true
		case c.path[0] != "metadata":
			return false
		}
		return s.name != "seed" || len(c.path) == 1 || slices.Contains([]any{"managedFields", "creationTimestamp", "selfLink", "resourceVersion", "uid"}, c.path[1])
	})
}

func (w *sweep) explained() (n int) {
	for _, k := range w.needed {
		n += k
	}
	return n
}

// refusal is what an answer says against a request.
func refusal(a *corpus.Answer) string {
	o, _ := a.Object.(map[string]any)
	if o["kind"] != "Status" {
		return "taken"
	}
	d, _ := o["details"].(map[string]any)
	return fmt.Sprint(o["reason"], " ", o["message"], " ", brief(d["causes"]))
}
