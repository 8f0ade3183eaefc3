package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

// record is what an informer has told, by object: every revision once and rising.
type record struct {
	t    *testing.T
	name string
	mu   sync.Mutex
	cond *sync.Cond
	last map[string]string // guarded by mu: key -> the state's value
	seen map[string]bool   // guarded by mu: key@revision
}

func newRecord(t *testing.T, name string) *record {
	r := &record{t: t, name: name, last: map[string]string{}, seen: map[string]bool{}}
	r.cond = sync.NewCond(&r.mu)
	return r
}

func (r *record) handler() cache.ResourceEventHandler {
	note := func(o any, gone bool) {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		m, err := meta.Accessor(o)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		key := m.GetNamespace() + "/" + m.GetName()
		if gone {
			delete(r.last, key)
		} else {
			at := key + "@" + m.GetResourceVersion()
			if r.seen[at] {
				r.t.Errorf("%s: %s was told twice", r.name, at)
			}
			r.seen[at] = true
			r.last[key] = m.GetLabels()["n"]
		}
		r.cond.Broadcast()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { note(o, false) },
		UpdateFunc: func(old, o any) {
			a, _ := meta.Accessor(old)
			b, _ := meta.Accessor(o)
			if a.GetResourceVersion() != b.GetResourceVersion() { // a relist repeats what is known
				note(o, false)
			}
		},
		DeleteFunc: func(o any) { note(o, true) },
	}
}

func (r *record) wait(want map[string]string) {
	r.t.Helper()
	timeout := time.AfterFunc(time.Minute, func() { r.cond.Broadcast() })
	defer timeout.Stop()
	deadline := time.Now().Add(time.Minute)
	r.mu.Lock()
	defer r.mu.Unlock()
	for fmt.Sprint(r.last) != fmt.Sprint(want) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s has %v, want %v", r.name, r.last, want)
		}
		r.cond.Wait()
	}
}

// restartable serves on one address across restarts of the server and its store.
type restartable struct {
	t    *testing.T
	path string
	addr string
	reg  Registry
	srv  *http.Server
	api  *Server
	st   *storage.Store
	done chan struct{}

	window, queue int  // of past events, and of those that wait for a watch; zero is the default
	narrow        bool // connections hold little on the way
}

func (r *restartable) up() {
	r.t.Helper()
	var err error
	if r.st, err = storage.Open(storage.Config{Path: r.path, RingEvents: r.window}); err != nil {
		r.t.Fatal(err)
	}
	if r.api, err = New(Config{Store: r.st, Registry: r.reg, Lab: lab.New(lab.Options{}), Log: zerolog.Nop(), WatchQueue: r.queue}); err != nil {
		r.t.Fatal(err)
	}
	addr := r.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	if r.narrow {
		l = narrowListener{l}
	}
	r.srv = &http.Server{Handler: r.api.Handler()}
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		_ = r.srv.Serve(l)
	}()
}

func (r *restartable) down() {
	r.t.Helper()
	r.api.Close()
	_ = r.srv.Close()
	<-r.done
	if err := r.st.Close(); err != nil {
		r.t.Error(err)
	}
}

func TestInformersAcrossRestart(t *testing.T) {
	t.Parallel()
	r := &restartable{t: t, path: tempDB(t), reg: newTestRegistry()}
	r.up()
	defer func() { r.down() }()
	cfg := &rest.Config{Host: "http://" + r.addr, QPS: -1}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	md, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	ctx, cancel := context.WithCancel(context.Background())
	typedF := informers.NewSharedInformerFactory(client, 0)
	dynF := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0)
	mdF := metadatainformer.NewSharedInformerFactory(md, 0)
	defer func() { cancel(); typedF.Shutdown(); dynF.Shutdown(); mdF.Shutdown() }()
	records := []*record{newRecord(t, "typed"), newRecord(t, "dynamic"), newRecord(t, "metadata")}
	infs := []cache.SharedIndexInformer{typedF.Core().V1().ConfigMaps().Informer(), dynF.ForResource(gvr).Informer(), mdF.ForResource(gvr).Informer()}
	for i, inf := range infs {
		if _, err := inf.AddEventHandler(records[i].handler()); err != nil {
			t.Fatal(err)
		}
	}
	typedF.Start(ctx.Done())
	dynF.Start(ctx.Done())
	mdF.Start(ctx.Done())
	for i, inf := range infs {
		if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
			t.Fatalf("%s did not sync", records[i].name)
		}
	}
	want := map[string]string{}
	write := func(round int) {
		cms := client.CoreV1().ConfigMaps("default")
		for i := range 5 {
			name, n := fmt.Sprintf("cm-%d", i), fmt.Sprint(round)
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"n": n}}}
			if round == 0 {
				_, err = cms.Create(ctx, cm, metav1.CreateOptions{})
			} else {
				_, err = cms.Update(ctx, cm, metav1.UpdateOptions{})
				var answer apierrors.APIStatus
				for tries := 0; err != nil && !errors.As(err, &answer) && tries < 10; tries++ { // sent on a connection of the server before
					_, err = cms.Update(ctx, cm, metav1.UpdateOptions{})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			want["default/"+name] = n
		}
	}
	for round := range 3 {
		if round > 0 {
			r.down()
			r.up()
		}
		write(round)
		for _, rec := range records {
			rec.wait(want)
		}
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(ctx, "cm-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(want, "default/cm-0")
	for _, rec := range records {
		rec.wait(want)
	}
}
