package conformance

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// maps are a world's ConfigMaps, which its watches look at.
type maps struct{ *world }

func (m maps) make(name, label string) *corev1.ConfigMap {
	m.t.Helper()
	made, err := m.client.CoreV1().ConfigMaps(m.ns).Create(m.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watch": label}}}, metav1.CreateOptions{})
	m.must(err)
	return made
}

func (m maps) set(name string, n int) *corev1.ConfigMap {
	m.t.Helper()
	return m.patch(name, `{"data":{"n":"`+strconv.Itoa(n)+`"}}`)
}

func (m maps) patch(name, patch string) *corev1.ConfigMap {
	m.t.Helper()
	c, err := m.client.CoreV1().ConfigMaps(m.ns).Patch(m.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	m.must(err)
	return c
}

func (m maps) remove(name string) {
	m.t.Helper()
	m.must(m.client.CoreV1().ConfigMaps(m.ns).Delete(m.ctx, name, metav1.DeleteOptions{}))
}

func (m maps) watch(o metav1.ListOptions) watch.Interface {
	m.t.Helper()
	s, err := m.client.CoreV1().ConfigMaps(m.ns).Watch(m.ctx, o)
	m.must(err)
	m.t.Cleanup(s.Stop)
	return s
}

// next is the next event of a watch.
func (m maps) next(s watch.Interface) (watch.EventType, *corev1.ConfigMap) {
	m.t.Helper()
	select {
	case e := <-s.ResultChan():
		c, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			m.t.Fatalf("watch: %+v", e)
		}
		return e.Type, c
	case <-m.ctx.Done():
		m.t.Fatal("no event came")
	}
	return "", nil
}

// sees holds the next events of a watch to what is wanted, each written as "TYPE name n".
func (m maps) sees(s watch.Interface, want ...string) {
	m.t.Helper()
	var got []string
	for range want {
		typ, c := m.next(s)
		text := string(typ) + " " + c.Name
		if n := c.Data["n"]; n != "" {
			text += " " + n
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("the watch saw %q, want %q", got, want)
	}
}

func TestWatchersSeeWhatTheySelect(t *testing.T) {
	m := maps{newWorld(t)}
	a, b, both := m.watch(metav1.ListOptions{LabelSelector: "watch=a"}), m.watch(metav1.ListOptions{LabelSelector: "watch=b"}), m.watch(metav1.ListOptions{LabelSelector: "watch in (a,b)"})
	m.make("one", "a")
	m.set("one", 1)
	m.set("one", 2)
	m.remove("one")
	m.make("two", "b")
	m.remove("two")
	m.make("other", "c")
	m.make("end", "a")
	m.make("end-b", "b")
	m.sees(a, "ADDED one", "MODIFIED one 1", "MODIFIED one 2", "DELETED one 2", "ADDED end")
	m.sees(b, "ADDED two", "DELETED two", "ADDED end-b")
	m.sees(both, "ADDED one", "MODIFIED one 1", "MODIFIED one 2", "DELETED one 2", "ADDED two", "DELETED two", "ADDED end", "ADDED end-b")
}

func TestWatchFromAResourceVersion(t *testing.T) {
	m := maps{newWorld(t)}
	m.make("one", "a")
	first := m.set("one", 1)
	m.set("one", 2)
	m.remove("one")
	m.sees(m.watch(metav1.ListOptions{LabelSelector: "watch=a", ResourceVersion: first.ResourceVersion}), "MODIFIED one 2", "DELETED one 2")
}

func TestWatchGoesOnWhereAnotherEnded(t *testing.T) {
	m := maps{newWorld(t)}
	before := m.watch(metav1.ListOptions{LabelSelector: "watch=a"})
	m.make("one", "a")
	m.sees(before, "ADDED one")
	m.set("one", 1)
	_, last := m.next(before)
	before.Stop()
	m.set("one", 2)
	m.remove("one")
	m.sees(m.watch(metav1.ListOptions{LabelSelector: "watch=a", ResourceVersion: last.ResourceVersion}), "MODIFIED one 2", "DELETED one 2")
}

func TestWatchTellsOfLeavingAndEnteringASelection(t *testing.T) {
	m := maps{newWorld(t)}
	s := m.watch(metav1.ListOptions{LabelSelector: "watch=a"})
	m.make("one", "a")
	m.set("one", 1)
	left := m.patch("one", `{"metadata":{"labels":{"watch":"b"}}}`)
	m.set("one", 2) // seen by nobody
	m.patch("one", `{"metadata":{"labels":{"watch":"a"}}}`)
	m.set("one", 3)
	m.remove("one")
	m.sees(s, "ADDED one", "MODIFIED one 1")
	typ, gone := m.next(s)
	if typ != watch.Deleted || gone.ResourceVersion != left.ResourceVersion || gone.Labels["watch"] != "a" {
		t.Errorf("leaving the selection was seen as %s of %+v; the label changed at %s", typ, gone.ObjectMeta, left.ResourceVersion)
	}
	m.sees(s, "ADDED one 2", "MODIFIED one 3", "DELETED one 3")
}

// TestWatchesAgreeOnTheOrder starts a watch at each event that the first one sees; all see the same from there on.
func TestWatchesAgreeOnTheOrder(t *testing.T) {
	m := maps{newWorld(t)}
	const events = 60
	first := m.watch(metav1.ListOptions{})
	m.sees(first, "ADDED kube-root-ca.crt")
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.make("one", "a")
		m.make("two", "a")
		for i := range events - 2 {
			m.set([]string{"one", "two"}[i%2], i)
		}
	}()
	var others []watch.Interface
	var versions []string
	for range events {
		_, c := m.next(first)
		versions = append(versions, c.ResourceVersion)
		others = append(others, m.watch(metav1.ListOptions{ResourceVersion: c.ResourceVersion}))
	}
	<-done
	for i, s := range others {
		for _, want := range versions[i+1:] {
			if _, c := m.next(s); c.ResourceVersion != want {
				t.Fatalf("the watch from %s saw %s where the first saw %s", versions[i], c.ResourceVersion, want)
			}
		}
	}
}

func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	m := maps{newWorld(t)}
	m.make("one", "a")
	m.make("two", "a")
	list, err := m.client.CoreV1().ConfigMaps(m.ns).List(m.ctx, metav1.ListOptions{LabelSelector: "watch=a"})
	m.must(err)
	s := m.watch(metav1.ListOptions{LabelSelector: "watch=a", SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	m.sees(s, "ADDED one", "ADDED two")
	typ, mark := m.next(s)
	if typ != watch.Bookmark || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || newer(list.ResourceVersion, mark.ResourceVersion) {
		t.Errorf("after the initial events comes %s %+v, at %s", typ, mark.ObjectMeta, list.ResourceVersion)
	}
	m.set("two", 1)
	m.sees(s, "MODIFIED two 1")

	whole := m.watch(metav1.ListOptions{LabelSelector: "watch=a", ResourceVersion: "0"})
	m.sees(whole, "ADDED one", "ADDED two 1")
}

func TestWatchEndsAfterItsTimeout(t *testing.T) {
	m := maps{newWorld(t)}
	s := m.watch(metav1.ListOptions{LabelSelector: "watch=a", TimeoutSeconds: ptr.To[int64](1)})
	for e := range s.ResultChan() {
		t.Errorf("an event: %+v", e)
	}
	if m.ctx.Err() != nil {
		t.Error("the watch did not end by itself")
	}
}
