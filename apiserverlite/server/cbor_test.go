package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// preferringCBOR has client-go's clients speak CBOR, and counts what they send and get in it.
func preferringCBOR(t *testing.T, url string) (*rest.Config, map[string]int) {
	t.Helper()
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	seen := map[string]int{}
	return &rest.Config{Host: url, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				seen[r.Method+" "+r.Header.Get("Content-Type")+" -> "+resp.Header.Get("Content-Type")]++
			}
			return resp, err
		})
	}}, seen
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestTypedClientSpeaksCBOR(t *testing.T) {
	s := startReal(t, "")
	cfg, seen := preferringCBOR(t, s.http.URL)
	cfg.ContentType, cfg.AcceptContentTypes = "application/cbor", "application/cbor,application/json;q=0.5"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	maps, ctx := client.CoreV1().ConfigMaps("default"), t.Context()
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"long": strings.Repeat("é", 70_000)}},
		Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Data["k"] = "w"
	if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil || made.Data["k"] != "w" || made.BinaryData["b"][1] != 255 {
		t.Fatalf("%v, %v", made, err)
	}
	if _, err = maps.Apply(ctx, applycorev1.ConfigMap("b", "default").WithData(map[string]string{"k": "v"}), metav1.ApplyOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an error is not read back: %v", err)
	}
	l, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(l.Items) != 2 || len(l.Items[0].Annotations["long"]) != 140_000 || l.Items[1].ManagedFields[0].FieldsV1 == nil {
		t.Fatalf("%d objects, %v", len(l.Items), err)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions(string(made.UID))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED b", "DELETED a"} {
		ev := <-w.ResultChan()
		m, ok := ev.Object.(*corev1.ConfigMap)
		if !ok || string(ev.Type)+" "+m.Name != want {
			t.Errorf("event %v, want %s", ev, want)
		}
	}
	w.Stop()
	for _, want := range []string{"POST application/cbor -> application/cbor", "PUT application/cbor -> application/cbor", "PATCH application/apply-patch+cbor -> application/cbor",
		"GET  -> application/cbor", "GET  -> application/cbor-seq", "DELETE application/cbor -> application/cbor"} {
		if seen[want] == 0 {
			t.Errorf("no %s among %v", want, seen)
		}
	}
}

func TestDynamicClientSpeaksCBOR(t *testing.T) {
	s := startReal(t, "")
	cfg, seen := preferringCBOR(t, s.http.URL)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ gvr, kind, body string }{
		{"v1/configmaps", "ConfigMap", `{"data":{"k":"v"}}`},
		{"snapshot.storage.k8s.io/v1/volumesnapshots", "VolumeSnapshot", `{"spec":{"source":{"persistentVolumeClaimName":"c"}}}`},
	} {
		t.Run(c.kind, func(t *testing.T) { dynamicCBOR(t, client, c.gvr, c.kind, c.body) })
	}
	for k := range seen {
		if !strings.Contains(k, "-> application/cbor") {
			t.Errorf("a client that prefers CBOR had %s", k)
		}
	}
}

func dynamicCBOR(t *testing.T, client dynamic.Interface, resource, kind, body string) {
	i := strings.LastIndex(resource, "/")
	gv, err := schema.ParseGroupVersion(resource[:i])
	if err != nil {
		t.Fatal(err)
	}
	objects, ctx := client.Resource(gv.WithResource(resource[i+1:])).Namespace("default"), t.Context()
	w, err := objects.Watch(ctx, metav1.ListOptions{LabelSelector: "cbor"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","labels":{"cbor":"1"}},%s`, gv, kind, body[1:]))); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Create(ctx, u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u.SetName("b")
	if _, err := objects.Apply(ctx, "b", u, metav1.ApplyOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	l, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "cbor"})
	if err != nil || len(l.Items) != 2 || l.Items[1].GetKind() != kind || l.GetKind() != kind+"List" {
		t.Fatalf("%v, %v", l, err)
	}
	for _, want := range []string{"a", "b"} {
		ev := <-w.ResultChan()
		if got, ok := ev.Object.(*unstructured.Unstructured); !ok || ev.Type != watch.Added || got.GetName() != want || got.GetKind() != kind {
			t.Errorf("event %v, want ADDED %s", ev, want)
		}
	}
	if err := objects.Delete(ctx, "none", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an error is not read back: %v", err)
	}
}

// TestQuantityOutOfBoundsInCBOR: reading such a number as a quantity would take minutes.
func TestQuantityOutOfBoundsInCBOR(t *testing.T) {
	s := startReal(t, "")
	body, err := direct.Marshal(map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"accessModes": []any{"ReadWriteOnce"},
		"resources": map[string]any{"requests": map[string]any{"storage": "1e-99999999"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, _, out := s.call(t, call{method: "POST", path: "/api/v1/namespaces/default/persistentvolumeclaims", ct: "application/cbor", body: string(body)}); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, out)
	}
}
