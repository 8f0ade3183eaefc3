package conformance

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apply is a server-side apply of a manifest by a manager; "!" before its name is force.
func (w *world) apply(r schema.GroupVersionResource, manager, manifest string, parts ...string) (*unstructured.Unstructured, error) {
	w.t.Helper()
	o := w.object(manifest)
	name, force := strings.CutPrefix(manager, "!")
	return w.at(r, w.ns).Apply(w.ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: name, Force: force}, parts...)
}

func (w *world) applied(r schema.GroupVersionResource, manager, manifest string, parts ...string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.apply(r, manager, manifest, parts...)
	w.must(err)
	return o
}

// owners are the managers that have an entry for the field, which is written as in managedFields: f:data/f:a.
func owners(o *unstructured.Unstructured, path ...string) []string {
	var out []string
	for _, m := range o.GetManagedFields() {
		var fields map[string]any
		if m.FieldsV1 != nil {
			fields = decode(m.FieldsV1.GetRawBytes())
		}
		if _, ok, _ := unstructured.NestedFieldNoCopy(fields, path...); ok {
			out = append(out, m.Manager)
		}
	}
	slices.Sort(out)
	return out
}

func field(o *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return v
}

var deployments = in("apps", "v1", "deployments")

const applyDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {app: d}}
spec:
  replicas: 0
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers: [{name: nginx, image: "nginx:1"}]
`

func TestApplyCreatesWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	o := w.applied(core("configmaps"), "one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '1'}}")
	again := w.applied(core("configmaps"), "one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '1'}}")
	if o.GetUID() == "" || again.GetResourceVersion() != o.GetResourceVersion() {
		t.Errorf("applied at %s, the same again at %s", o.GetResourceVersion(), again.GetResourceVersion())
	}
	if got := owners(o, "f:data", "f:a"); !slices.Equal(got, []string{"one"}) {
		t.Errorf("owners: %v", got)
	}
	_, err := w.at(core("configmaps"), w.ns).Patch(w.ctx, "m", types.ApplyPatchType, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: m, managedFields: [{manager: x}]}}"), metav1.PatchOptions{FieldManager: "one"})
	w.refused(err, apierrors.IsBadRequest, "metadata.managedFields must be nil")
}

func TestApplyToSubresources(t *testing.T) {
	w := newWorld(t)
	w.applied(core("pods"), "one", "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: nobody, containers: [{name: c, image: i}]}}")
	o := w.applied(core("pods"), "two", "{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {conditions: [{type: example.com/tested, status: 'True'}]}}", "status")
	if got := owners(o, "f:status", "f:conditions", `k:{"type":"example.com/tested"}`); !slices.Equal(got, []string{"two"}) {
		t.Errorf("owners of the condition: %v", got)
	}
	for _, m := range o.GetManagedFields() {
		if (m.Manager == "two") != (m.Subresource == "status") {
			t.Errorf("managed fields: %+v", m)
		}
	}
	w.applied(deployments, "one", strings.Replace(applyDeployment, "replicas: 0", "replicas: 2", 1))
	scale := w.applied(deployments, "three", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d}, spec: {replicas: 2}}", "scale")
	if field(scale, "spec", "replicas") != int64(2) {
		t.Errorf("scale: %v", scale)
	}
	_, err := w.apply(deployments, "three", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d}, spec: {replicas: 1}}", "scale")
	w.refused(err, apierrors.IsConflict, `conflict with "one"`, ".spec.replicas")
	w.applied(deployments, "!three", "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d}, spec: {replicas: 1}}", "scale")
	d, err := w.at(deployments, w.ns).Get(w.ctx, "d", metav1.GetOptions{})
	w.must(err)
	if got := owners(d, "f:spec", "f:replicas"); !slices.Equal(got, []string{"three"}) || field(d, "spec", "replicas") != int64(1) {
		t.Errorf("owners of the replicas: %v; %+v", got, d.GetManagedFields())
	}
}

func TestApplyRemovesWhatItsManagerGaveUp(t *testing.T) {
	w := newWorld(t)
	w.applied(core("configmaps"), "one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '1', b: '1', c: '1'}}")
	w.applied(core("configmaps"), "two", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {b: '1'}}")
	o := w.applied(core("configmaps"), "one", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {c: '1'}}")
	if data := field(o, "data"); !same(data, map[string]any{"b": "1", "c": "1"}) {
		t.Errorf("a is nobody's now, b the other's; the data: %v", data)
	}
	if got := owners(o, "f:data", "f:b"); !slices.Equal(got, []string{"two"}) {
		t.Errorf("owners of b: %v", got)
	}
	o = w.applied(core("configmaps"), "two", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}")
	if data := field(o, "data"); !same(data, map[string]any{"c": "1"}) {
		t.Errorf("data: %v", data)
	}
}

func TestApplyConflictsUnlessForced(t *testing.T) {
	w := newWorld(t)
	w.applied(deployments, "one", applyDeployment)
	theirs := strings.Replace(applyDeployment, "nginx:1", "nginx:2", 1)
	_, err := w.apply(deployments, "two", theirs)
	w.refused(err, apierrors.IsConflict, `Apply failed with 1 conflict: conflict with "one"`, `.spec.template.spec.containers[name="nginx"].image`)
	o := w.applied(deployments, "!two", theirs)
	image := []string{"f:spec", "f:template", "f:spec", "f:containers", `k:{"name":"nginx"}`, "f:image"}
	if got := owners(o, image...); !slices.Equal(got, []string{"two"}) {
		t.Errorf("owners of the image after force: %v", got)
	}
	if got := owners(o, "f:spec", "f:selector"); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("owners of the selector: %v", got)
	}
	// The first gives up what it lost by no longer saying it; the second's stays.
	o = w.applied(deployments, "one", strings.Replace(applyDeployment, `, image: "nginx:1"`, "", 1))
	if c := field(o, "spec", "template", "spec", "containers").([]any)[0].(map[string]any); c["image"] != "nginx:2" {
		t.Errorf("container: %v", c)
	}
}

// TestManagersOfTwoVersions: who wrote a field in one version keeps it when the object is written in another.
func TestManagersOfTwoVersions(t *testing.T) {
	w := newWorld(t)
	first := schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	second := first
	second.Version = "v1"
	const target = "{apiVersion: apps/v1, kind: Deployment, name: d}"
	w.applied(first, "one", "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3, scaleTargetRef: "+target+"}}")
	w.applied(second, "two", "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3, minReplicas: 2, scaleTargetRef: "+target+"}}")
	_, err := w.apply(second, "two", "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 4, minReplicas: 2, scaleTargetRef: "+target+"}}")
	w.refused(err, apierrors.IsConflict, `conflict with "one": .spec.maxReplicas`)
	_, err = w.at(second, w.ns).Patch(w.ctx, "h", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{FieldManager: "three"})
	w.must(err)
	h, err := w.at(first, w.ns).Get(w.ctx, "h", metav1.GetOptions{})
	w.must(err)
	var who []string
	for _, m := range h.GetManagedFields() {
		who = append(who, m.Manager+" "+m.APIVersion)
	}
	if want := []string{"one autoscaling/v2", "two autoscaling/v1", "three autoscaling/v1"}; !slices.Equal(who, want) {
		t.Errorf("managers: %v, want %v", who, want)
	}
}
