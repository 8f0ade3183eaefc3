package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fixture is a server on a loopback listener.
type fixture struct {
	*Server
	http *httptest.Server
	lab  *lab.Lab
	path string
}

func tempDB(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "cluster.db")
}

func start(t testing.TB, path string, r Registry) *fixture {
	t.Helper()
	return startWith(t, path, Config{Registry: r})
}

func startWith(t testing.TB, path string, cfg Config) *fixture {
	t.Helper()
	d := storage.Normal
	if path == "" {
		d = storage.Memory
	}
	return startOn(t, storage.Config{Path: path, Durability: d, RingBytes: 1 << 30}, cfg)
}

func startOn(t testing.TB, kept storage.Config, cfg Config) *fixture {
	t.Helper()
	st, err := storage.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	l := cfg.Lab
	if l == nil {
		l = lab.New(lab.Options{})
	}
	cfg.Store, cfg.Lab, cfg.Log, cfg.Version = st, l, zerolog.Nop(), "0.1"
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, http: httptest.NewServer(s.Handler()), lab: l, path: kept.Path}
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) stop() {
	f.Server.Close()
	f.http.CloseClientConnections()
	f.http.Close()
	f.store.Close()
}

func (f *fixture) config() *rest.Config { return &rest.Config{Host: f.http.URL, QPS: -1} }

func (f *fixture) typed(t testing.TB) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) dynamic(t testing.TB) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) metadata(t testing.TB) metadata.Interface {
	t.Helper()
	c, err := metadata.NewForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) do(t testing.TB, req *http.Request) *http.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
}

func TestTypedLifeOfAClaim(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().PersistentVolumeClaims("default")
	ctx := context.Background()
	made, err := c.Create(ctx, claim("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Status.Phase != corev1.ClaimPending {
		t.Fatalf("created: %+v", made)
	}
	if len(made.ManagedFields) != 1 {
		t.Fatalf("managed fields: %+v", made.ManagedFields)
	}
	if _, err := c.Create(ctx, claim("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) || err.Error() != `persistentvolumeclaims "a" already exists` {
		t.Fatalf("second create: %v", err)
	}
	up := made.DeepCopy()
	up.Labels = map[string]string{"x": "y"}
	up2, err := c.Update(ctx, up, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := c.Update(ctx, up2, metav1.UpdateOptions{}); err != nil || same.ResourceVersion != up2.ResourceVersion {
		t.Fatalf("an update without effect: %v %v", same.ResourceVersion, err)
	}
	if _, err := c.Update(ctx, up, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || err.Error() !=
		`Operation cannot be fulfilled on persistentvolumeclaims "a": the object has been modified; please apply your changes to the latest version and try again` {
		t.Fatalf("stale update: %v", err)
	}
	up2.Status.Phase = corev1.ClaimBound
	up2.Spec.VolumeName = "ignored-by-status"
	bound, err := c.UpdateStatus(ctx, up2, metav1.UpdateOptions{})
	if err != nil || bound.Status.Phase != corev1.ClaimBound || bound.Spec.VolumeName != "" {
		t.Fatalf("status: %+v %v", bound, err)
	}
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.ResourceVersion != bound.ResourceVersion {
		t.Fatalf("list: %+v %v", list, err)
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("get after delete: %v", err)
	}
}

// as is a typed client with a user agent.
func (f *fixture) as(t testing.TB, agent string) kubernetes.Interface {
	t.Helper()
	cfg := f.config()
	cfg.UserAgent = agent
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func storageOf(resource string) schema.GroupResource { return schema.GroupResource{Resource: resource} }

func errorsAs[T any](err error, target *T) bool { return errors.As(err, target) }

func newKey(resource, namespace, name string) storage.Key {
	return storage.Key{Resource: storageOf(resource), Namespace: namespace, Name: name}
}
