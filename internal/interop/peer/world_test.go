package peer

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/server/corpus"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

// world has upstream's server, whose etcd is put back to what it was at the start before each run, and
// makes a server of ours for each.
type world struct {
	peer       *Peer
	etcd       *clientv3.Client
	client     kubernetes.Interface
	extensions extensions.Interface
	start      map[string][]byte
}

func newWorld(t *testing.T, p *Peer) *world {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.EtcdURL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w := &world{peer: p, etcd: c}
	if w.client, err = kubernetes.NewForConfig(p.Config()); err != nil {
		t.Fatal(err)
	}
	if w.extensions, err = extensions.NewForConfig(p.Config()); err != nil {
		t.Fatal(err)
	}
	w.bootstrap(t)
	w.define(t)
	w.start = w.keys(t)
	return w
}

// bootstrap puts into upstream's server what controllers put into a cluster, and ours has from the start.
func (w *world) bootstrap(t *testing.T) {
	t.Helper()
	config := w.peer.Config()
	config.UserAgent = "kube-apiserver"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	resources := map[schema.GroupVersionKind]*registry.Resource{}
	for _, r := range reg.Resources() {
		resources[r.GVK] = r
	}
	for _, o := range reg.Bootstrap() {
		gvks, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			t.Fatal(err)
		}
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{Object: u}
		obj.SetGroupVersionKind(gvks[0])
		if obj.GetKind() == "Service" { // upstream's server there has another network
			unstructured.RemoveNestedField(obj.Object, "spec", "clusterIP")
			unstructured.RemoveNestedField(obj.Object, "spec", "clusterIPs")
		}
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		r := resources[gvks[0]]
		if _, err := client.Resource(r.GVR).Namespace(m.GetNamespace()).Create(t.Context(), obj, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// define gives upstream's server the snapshot kinds by the definitions that everybody installs; ours has them built in.
func (w *world) define(t *testing.T) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/*snapshot.storage.k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions of snapshots: %v", err)
	}
	definitions := w.extensions.ApiextensionsV1().CustomResourceDefinitions()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(b, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if _, err := definitions.Create(t.Context(), &d, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			now, err := definitions.Get(ctx, d.Name, metav1.GetOptions{})
			return err == nil && apihelpers.IsCRDConditionTrue(now, apiextensionsv1.Established), err
		})
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
	}
}

func (w *world) keys(t *testing.T) map[string][]byte {
	t.Helper()
	resp, err := w.etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = kv.Value
	}
	return out
}

// fresh gives both servers without traces of earlier runs.
func (w *world) fresh(t *testing.T) (theirs, ours corpus.Server) {
	t.Helper()
	now := w.keys(t)
	told := false // does upstream's admission hear of it
	for k, v := range now {
		if was, ok := w.start[k]; !ok {
			told = told || informed.MatchString(k[:strings.LastIndex(k, "/")]) || informed.MatchString(k)
			w.must(t, clientv3.OpDelete(k))
		} else if !bytes.Equal(was, v) {
			w.must(t, clientv3.OpPut(k, string(was)))
		}
	}
	for k, v := range w.start {
		if _, ok := now[k]; !ok {
			w.must(t, clientv3.OpPut(k, string(v)))
		}
	}
	if told {
		time.Sleep(informerTime)
	}
	return corpus.Server{URL: w.peer.URL, Token: w.peer.Token, Client: w.peer.client()}, startOurs(t)
}

func (w *world) must(t *testing.T, op clientv3.Op) {
	t.Helper()
	if _, err := w.etcd.Do(t.Context(), op); err != nil {
		t.Fatal(fmt.Errorf("put the peer back: %w", err))
	}
}

func startOurs(t *testing.T) corpus.Server {
	t.Helper()
	reg, err := registry.NewWith(registry.Options{TokenVolume: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.Config{Durability: storage.Memory})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Store: store, Registry: reg, Lab: lab.New(lab.Options{}), Log: zerolog.Nop(), Version: "0.1"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		h.CloseClientConnections()
		h.Close()
		store.Close()
	})
	h.Client().Transport.(*http.Transport).DisableCompression = true // but where a row asks for it
	return corpus.Server{URL: h.URL, Client: h.Client()}
}
