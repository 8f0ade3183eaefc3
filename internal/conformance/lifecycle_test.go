package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// kind is what TestLifecycles needs to know of one.
type kind struct {
	resource schema.GroupVersionResource
	global   bool   // it has no namespace
	manifest string // apiVersion, kind and what the kind must have; NAME and NAMESPACE stand for themselves
	patch    string // a merge patch that changes something which may be changed
	status   string // a merge patch of the status; empty where the kind has none, or a controller would undo it
	// immutable are merge patches that the kind refuses.
	immutable []string
	// defined kinds have no Go type in the server, so they know no strategic merge.
	defined bool
}

// TestLifecycles takes one object of each kind through all that can be done to it, and asks a watch for its view of that.
func TestLifecycles(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.resource.GroupVersion().String()+"/"+k.resource.Resource, func(t *testing.T) { lifecycle(newWorld(t), k) })
	}
}

// life is one kind's run.
type life struct {
	*world
	kind
	client   dynamic.ResourceInterface
	selector string
}

func lifecycle(w *world, k kind) {
	l := &life{world: w, kind: k, selector: "lifecycle=" + w.ns}
	l.client = w.at(k.resource, w.ns)
	if k.global {
		l.client = w.at(k.resource, "")
	}
	before, err := l.client.List(w.ctx, metav1.ListOptions{LabelSelector: l.selector})
	w.must(err)
	if len(before.Items) > 0 {
		w.t.Fatalf("there are some already: %v", before.Items)
	}
	stream, err := l.client.Watch(w.ctx, metav1.ListOptions{LabelSelector: l.selector, ResourceVersion: before.GetResourceVersion()})
	w.must(err)
	defer stream.Stop()

	a := l.make("a")
	l.reads(a)
	l.patches(a.GetName())
	l.updates(a.GetName())
	l.statuses(a.GetName())
	l.applies(a.GetName())
	w.must(l.client.Delete(w.ctx, a.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	names := []string{a.GetName(), l.make("b").GetName(), l.make("c").GetName()}
	w.must(l.client.DeleteCollection(w.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{LabelSelector: l.selector}))
	l.watched(stream, names)
	after, err := l.client.List(w.ctx, metav1.ListOptions{LabelSelector: l.selector})
	w.must(err)
	if len(after.Items) > 0 {
		w.t.Errorf("left: %v", after.Items)
	}
	_, err = l.client.Get(w.ctx, a.GetName(), metav1.GetOptions{})
	w.refused(err, apierrors.IsNotFound, a.GetName()+`" not found`)
	w.refused(l.client.Delete(w.ctx, a.GetName(), metav1.DeleteOptions{}), apierrors.IsNotFound)
}

func (l *life) named(name string) *unstructured.Unstructured {
	l.t.Helper()
	name = l.unique(name)
	o := l.object(strings.NewReplacer("NAMESPACE", l.ns, "NAME", name).Replace(l.manifest))
	o.SetName(name)
	if !l.global {
		o.SetNamespace(l.ns)
	}
	o.SetLabels(map[string]string{"lifecycle": l.ns})
	return o
}

func (l *life) make(name string) *unstructured.Unstructured {
	l.t.Helper()
	o := l.named(name)
	dry, err := l.client.Create(l.ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	l.must(err)
	_, err = l.client.Get(l.ctx, dry.GetName(), metav1.GetOptions{})
	l.refused(err, apierrors.IsNotFound)
	made, err := l.client.Create(l.ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	l.must(err)
	if stamp := made.GetCreationTimestamp(); made.GetUID() == "" || made.GetResourceVersion() == "" || stamp.IsZero() {
		l.t.Errorf("created: %v", made)
	}
	_, err = l.client.Create(l.ctx, o, metav1.CreateOptions{})
	l.refused(err, apierrors.IsAlreadyExists, "already exists")
	return made
}

func (l *life) reads(made *unstructured.Unstructured) {
	l.t.Helper()
	got, err := l.client.Get(l.ctx, made.GetName(), metav1.GetOptions{})
	l.must(err)
	if got.GetUID() != made.GetUID() || got.GetKind() != made.GetKind() || got.GetAPIVersion() != made.GetAPIVersion() {
		l.t.Errorf("got %v, made %v", got, made)
	}
	everywhere := l.at(l.resource, "")
	for what, o := range map[string]metav1.ListOptions{"label": {LabelSelector: l.selector}, "name": {FieldSelector: "metadata.name=" + made.GetName()}} {
		for _, c := range []dynamic.ResourceInterface{l.client, everywhere} {
			list, err := c.List(l.ctx, o)
			l.must(err)
			if len(list.Items) != 1 || list.Items[0].GetUID() != made.GetUID() || !strings.HasSuffix(list.GetKind(), "List") {
				l.t.Errorf("by %s: %v", what, list)
			}
		}
	}
}

// patches tries each type of patch.
func (l *life) patches(name string) {
	l.t.Helper()
	was, err := l.client.Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	got, err := l.client.Patch(l.ctx, name, types.MergePatchType, []byte(l.patch), metav1.PatchOptions{})
	l.must(err)
	l.has(got, l.patch)
	if got.GetResourceVersion() == was.GetResourceVersion() {
		l.t.Errorf("the patch %s changed nothing", l.patch)
	}
	if !l.defined {
		got, err = l.client.Patch(l.ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"strategic":"yes"}}}`), metav1.PatchOptions{})
		l.must(err)
		l.has(got, `{"metadata":{"labels":{"strategic":"yes","lifecycle":"`+l.ns+`"}}}`)
	}
	got, err = l.client.Patch(l.ctx, name, types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/labels/json","value":"yes"},{"op":"test","path":"/metadata/name","value":"`+name+`"}]`), metav1.PatchOptions{})
	l.must(err)
	l.has(got, `{"metadata":{"labels":{"json":"yes"}}}`)
	for _, p := range l.immutable {
		_, err := l.client.Patch(l.ctx, name, types.MergePatchType, []byte(p), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			l.t.Errorf("patch %s: %v", p, err)
		}
	}
	_, err = l.client.Patch(l.ctx, name, types.MergePatchType, []byte(`{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`), metav1.PatchOptions{})
	l.refused(err, apierrors.IsInvalid, "field is immutable")
}

// updates replaces the object, and cannot with a version that is not the last.
func (l *life) updates(name string) {
	l.t.Helper()
	for range 20 {
		now, err := l.client.Get(l.ctx, name, metav1.GetOptions{})
		l.must(err)
		stale := now.DeepCopy()
		now.SetAnnotations(map[string]string{"updated": "yes"})
		got, err := l.client.Update(l.ctx, now, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue // a controller was faster
		}
		l.must(err)
		l.has(got, `{"metadata":{"annotations":{"updated":"yes"}}}`)
		stale.SetAnnotations(map[string]string{"stale": "yes"})
		_, err = l.client.Update(l.ctx, stale, metav1.UpdateOptions{})
		l.refused(err, apierrors.IsConflict, "the object has been modified")
		got.SetUID("00000000-0000-0000-0000-000000000000")
		_, err = l.client.Update(l.ctx, got, metav1.UpdateOptions{})
		l.refused(err, apierrors.IsConflict, "UID in precondition: 00000000")
		return
	}
	l.t.Error("the update found no rest between the controllers' writes")
}

// statuses writes the status by its subresource, which leaves the rest alone, and not by the object itself.
func (l *life) statuses(name string) {
	l.t.Helper()
	if l.status == "" {
		return
	}
	got, err := l.client.Patch(l.ctx, name, types.MergePatchType, []byte(l.status), metav1.PatchOptions{}, "status")
	l.must(err)
	l.has(got, l.status)
	if got, err = l.client.Get(l.ctx, name, metav1.GetOptions{}, "status"); err != nil {
		l.t.Fatal(err)
	}
	l.has(got, l.status)
	want, _, err := unstructured.NestedFieldCopy(got.Object, "status")
	l.must(err)
	got, err = l.client.Patch(l.ctx, name, types.MergePatchType, []byte(`{"status":null}`), metav1.PatchOptions{})
	l.must(err)
	if is, _, _ := unstructured.NestedFieldCopy(got.Object, "status"); !same(is, want) {
		l.t.Errorf("the main resource wrote the status: %v, was %v", is, want)
	}
	got.SetManagedFields(nil)
	got, err = l.client.UpdateStatus(l.ctx, got, metav1.UpdateOptions{})
	l.must(err)
	l.has(got, l.status)
}

// applies takes the manifest over by server-side apply.
func (l *life) applies(name string) {
	l.t.Helper()
	o := l.named("a")
	o.SetLabels(map[string]string{"lifecycle": l.ns, "applied": "yes"})
	got, err := l.client.Apply(l.ctx, name, o, metav1.ApplyOptions{FieldManager: "conformance-apply", Force: true})
	l.must(err)
	l.has(got, `{"metadata":{"labels":{"applied":"yes","json":"yes"}}}`)
	if !slices.ContainsFunc(got.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "conformance-apply" && f.Operation == metav1.ManagedFieldsOperationApply
	}) {
		l.t.Errorf("managed fields: %+v", got.GetManagedFields())
	}
}

// watched reads a watch until each of the names is gone, and holds it to what was done to them.
func (l *life) watched(stream watch.Interface, names []string) {
	l.t.Helper()
	seen := map[string][]watch.EventType{}
	left := slices.Clone(names)
	last := ""
	for len(left) > 0 {
		var e watch.Event
		select {
		case e = <-stream.ResultChan():
		case <-l.ctx.Done():
			l.t.Fatalf("%v are not gone; the watch saw %v", left, seen)
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			l.t.Fatalf("watch: %+v, after %v", e, seen)
		}
		if v := o.GetResourceVersion(); !newer(v, last) {
			l.t.Errorf("%s %s at %s comes after %s", e.Type, o.GetName(), v, last)
		} else {
			last = v
		}
		seen[o.GetName()] = append(seen[o.GetName()], e.Type)
		if e.Type == watch.Deleted {
			left = slices.DeleteFunc(left, func(n string) bool { return n == o.GetName() })
		}
	}
	for _, n := range names {
		for i, e := range seen[n] {
			want := watch.Modified
			switch i {
			case 0:
				want = watch.Added
			case len(seen[n]) - 1:
				want = watch.Deleted
			}
			if e != want {
				l.t.Errorf("%s was seen as %v", n, seen[n])
				break
			}
		}
	}
	if n := len(seen[names[0]]); n < 6 {
		l.t.Errorf("the watch saw %d events of %s: %v", n, names[0], seen)
	}
}

// newer compares resource versions, which clients may do since upstream says that they are numbers.
func newer(v, than string) bool {
	return len(v) > len(than) || len(v) == len(than) && v > than
}

// has fails the test unless o holds all of a merge patch.
func (l *life) has(o *unstructured.Unstructured, patch string) {
	l.t.Helper()
	var want map[string]any
	l.must(json.Unmarshal([]byte(patch), &want))
	if !holds(o.Object, want) {
		l.t.Errorf("%s lacks %s:\n%v", o.GetName(), patch, o.Object)
	}
}

func holds(have, want any) bool {
	if list, ok := want.([]any); ok {
		is, ok := have.([]any)
		if !ok || len(is) != len(list) {
			return false
		}
		for i := range list {
			if !holds(is[i], list[i]) {
				return false
			}
		}
		return true
	}
	m, ok := want.(map[string]any)
	if !ok {
		return same(have, want)
	}
	h, ok := have.(map[string]any)
	for k, v := range m {
		if !ok || v == nil && h[k] != nil || v != nil && !holds(h[k], v) {
			return false
		}
	}
	return ok
}

func same(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// decode reads JSON that must be an object.
func decode(b []byte) map[string]any {
	var m map[string]any
	if json.Unmarshal(b, &m) != nil {
		return nil
	}
	return m
}
