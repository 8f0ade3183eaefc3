package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"drydock.dev/drydock/apiserverlite/storage"
)

// history is what there was at each revision: the objects by namespace and name, with what tells them apart.
type history map[string]map[string]string

// TestExactHistory writes at random and then asks for every revision there was: whole, by namespace, by selector, in
// pages and in other forms. What the window of events no longer reaches is refused, and a token from before it can be gone on with.
func TestExactHistory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	const window, writes = 64, 150
	h := historian{fixture: startOn(t, storage.Config{Durability: storage.Memory, RingEvents: window}, Config{Registry: newTestRegistry()})}
	h.typed, h.dynamic, h.metadata = h.fixture.typed(t), h.fixture.dynamic(t), h.fixture.metadata(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := h.typed.CoreV1().Namespaces().Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now := map[string]string{}
	was, order := writeAtRandom(t, h, rnd, now, writes)
	token := "" // of a list that begins before what is kept, and was read then
	for i, rv := range order {
		l, err := h.typed.CoreV1().ConfigMaps("").List(ctx, exactly(rv))
		old := i < writes-window
		switch {
		case old && apierrors.IsResourceExpired(err):
			continue
		case old && i >= writes-window-8: // the window has room for some more
		case old:
			t.Fatalf("revision %s of %s is kept: %v", rv, order[len(order)-1], err)
		}
		if err != nil {
			t.Fatalf("revision %s: %v", rv, err)
		}
		if got := contents(l); l.ResourceVersion != rv || !maps.Equal(got, was[rv]) {
			t.Fatalf("at %s: %v at %s, want %v", rv, got, l.ResourceVersion, was[rv])
		}
		checkOtherReads(t, h, rv, was[rv])
		if l, err := h.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: rv}); token == "" && err == nil && l.Continue != "" {
			token = l.Continue
		}
	}
	compactAndGoOn(t, h, rnd, now, token)
}

func exactly(rv string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

// historian has a server and clients of it.
type historian struct {
	*fixture
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

// writeAtRandom changes what there is now, and returns the revisions in their order.
func writeAtRandom(t *testing.T, h historian, rnd *rand.Rand, now map[string]string, n int) (history, []string) {
	t.Helper()
	was := history{}
	var order []string
	for i := range n {
		ns, name := []string{"default", "other"}[rnd.IntN(2)], fmt.Sprint("c", rnd.IntN(5))
		configMaps := h.typed.CoreV1().ConfigMaps(ns)
		key := ns + "/" + name
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"odd": fmt.Sprint(i % 2)}}, Data: map[string]string{"i": fmt.Sprint(i)}}
		_, there := now[key]
		var made *corev1.ConfigMap
		var err error
		switch {
		case there && rnd.IntN(3) == 0:
			err = configMaps.Delete(ctx, name, metav1.DeleteOptions{})
			delete(now, key)
		case there:
			made, err = configMaps.Update(ctx, cm, metav1.UpdateOptions{})
		default:
			made, err = configMaps.Create(ctx, cm, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		rv := h.store.Revision().String()
		if made != nil {
			now[key] = fmt.Sprint(i)
			if made.ResourceVersion != rv {
				t.Fatalf("an object of revision %s is of %s", rv, made.ResourceVersion)
			}
		}
		was[rv] = maps.Clone(now)
		order = append(order, rv)
	}
	return was, order
}

func contents(l *corev1.ConfigMapList) map[string]string {
	out := map[string]string{}
	for _, m := range l.Items {
		out[m.Namespace+"/"+m.Name] = m.Data["i"]
	}
	return out
}

// checkOtherReads asks for one revision in every way.
func checkOtherReads(t *testing.T, h historian, rv string, want map[string]string) {
	t.Helper()
	kept := func(keep func(key, i string) bool) map[string]string {
		out := maps.Clone(want)
		maps.DeleteFunc(out, func(k, i string) bool { return !keep(k, i) })
		return out
	}
	same := func(what string, got, want map[string]string, err error) {
		t.Helper()
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("at %s, %s: %v, want %v: %v", rv, what, got, want, err)
		}
	}
	list := func(ns string, o metav1.ListOptions) (map[string]string, error) {
		l, err := h.typed.CoreV1().ConfigMaps(ns).List(ctx, o)
		return contents(l), err
	}
	got, err := list("other", exactly(rv))
	same("one namespace", got, kept(func(k, _ string) bool { return strings.HasPrefix(k, "other/") }), err)
	o := exactly(rv)
	o.LabelSelector = "odd=1"
	got, err = list("", o)
	same("a label", got, kept(func(_, i string) bool { n, _ := strconv.Atoi(i); return n%2 == 1 }), err)
	o = exactly(rv)
	o.FieldSelector = "metadata.name=c1"
	got, err = list("", o)
	same("a field", got, kept(func(k, _ string) bool { return strings.HasSuffix(k, "/c1") }), err)

	got = map[string]string{}
	for o := (metav1.ListOptions{ResourceVersion: rv, Limit: 2}); ; {
		l, err := h.typed.CoreV1().ConfigMaps("").List(ctx, o)
		if err != nil || l.ResourceVersion != rv || len(l.Items) > 2 {
			t.Fatalf("at %s, a page: %d of %s: %v", rv, len(l.Items), l.ResourceVersion, err)
		}
		maps.Copy(got, contents(l))
		if l.Continue == "" {
			break
		}
		o = metav1.ListOptions{Limit: 2, Continue: l.Continue}
	}
	same("pages", got, want, nil)

	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	u, err := h.dynamic.Resource(gvr).List(ctx, exactly(rv))
	if err != nil {
		t.Fatal(err)
	}
	got = map[string]string{}
	for _, m := range u.Items {
		i, _, _ := unstructured.NestedString(m.Object, "data", "i")
		got[m.GetNamespace()+"/"+m.GetName()] = i
	}
	same("JSON", got, want, nil)
	p, err := h.metadata.Resource(gvr).List(ctx, exactly(rv))
	if err != nil || len(p.Items) != len(want) || p.ResourceVersion != rv {
		t.Fatalf("at %s, metadata: %d: %v", rv, len(p.Items), err)
	}
}

// compactAndGoOn fills the window until a token's revision is out of it.
func compactAndGoOn(t *testing.T, h historian, rnd *rand.Rand, now map[string]string, token string) {
	t.Helper()
	if token == "" {
		t.Fatal("there was no page to go on from")
	}
	if _, err := h.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{Limit: 1, Continue: token}); err != nil {
		t.Fatalf("a token in the window: %v", err)
	}
	writeAtRandom(t, h, rnd, now, 200)
	_, err := h.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{Limit: 1, Continue: token})
	var st apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errorsAs(err, &st) || st.Status().ListMeta.Continue == "" {
		t.Fatalf("a token from before the window: %v", err)
	}
	var rest []string
	for next := st.Status().ListMeta.Continue; next != ""; {
		l, err := h.typed.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{Limit: 2, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		for k, i := range contents(l) {
			if now[k] != i {
				t.Errorf("the rest has %s of %s, now it is %q", k, i, now[k])
			}
			rest = append(rest, k)
		}
		next = l.Continue
	}
	slices.Sort(rest)
	want := slices.Sorted(maps.Keys(now))
	for len(want) > 0 && len(rest) > 0 && want[0] != rest[0] { // what the first page had told of
		want = want[1:]
	}
	if !slices.Equal(rest, want) {
		t.Errorf("the rest is %v of %v", rest, slices.Sorted(maps.Keys(now)))
	}
}
