package journal

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const class = "journal"

// direct is a client without a cache, which can watch.
func direct(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "csi.drydock.dev"}
	if err := c.Create(t.Context(), sc); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return c
}

// namespace makes one for the test. It is deleted at the end; here, unlike in envtest, it goes.
func namespace(t *testing.T, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "journal-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// manage runs a manager with the operator and returns how to stop it.
func manage(t *testing.T, o ctrl.Options) (m ctrl.Manager, stop func()) {
	t.Helper()
	o.Scheme, o.Metrics = scheme.Scheme, metrics.Options{BindAddress: "0"}
	m, err := ctrl.NewManager(config, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := (&Reconciler{Client: m.GetClient(), Class: class}).SetupWithManager(ctx, m); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	}
	t.Cleanup(stop)
	return m, stop
}

// until waits for an event of a journal that is as it should be.
func until(t *testing.T, c client.WithWatch, ns, name string, good func(watch.EventType, *corev1.ConfigMap) bool) *corev1.ConfigMap {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for ev := range w.ResultChan() {
		if o, ok := ev.Object.(*corev1.ConfigMap); ok && good(ev.Type, o) {
			return o
		}
	}
	t.Fatalf("journal %s/%s did not come to what it should be", ns, name)
	return nil
}

func bound(_ watch.EventType, j *corev1.ConfigMap) bool { return j.Annotations[VolumeKey] != "" }

func journal(ns, name, size string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": "journal"}}, Data: map[string]string{"size": size}}
}

func TestJournalGetsABoundVolume(t *testing.T) {
	c := direct(t)
	ns := namespace(t, c)
	m, _ := manage(t, ctrl.Options{})
	if err := c.Create(t.Context(), journal(ns, "a", "1Gi")); err != nil {
		t.Fatal(err)
	}
	j := until(t, c, ns, "a", bound)
	var pv corev1.PersistentVolume
	if err := c.Get(t.Context(), client.ObjectKey{Name: j.Annotations[VolumeKey]}, &pv); err != nil {
		t.Fatal(err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle == "" || pv.Spec.ClaimRef.Namespace != ns {
		t.Errorf("the volume is not the claim's: %+v", pv.Spec)
	}
	// The manager's cache knows the claim by its owner.
	var claims corev1.PersistentVolumeClaimList
	if err := m.GetClient().List(t.Context(), &claims, client.InNamespace(ns), client.MatchingFields{OwnerField: "a"}); err != nil || len(claims.Items) != 1 {
		t.Fatalf("claims by owner: %v %v", claims.Items, err)
	}
	if ref := metav1.GetControllerOf(&claims.Items[0]); ref == nil || ref.UID != j.UID {
		t.Errorf("the claim's controller is %+v", ref)
	}

	// The journal goes when its claim is gone.
	if err := c.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	until(t, c, ns, "a", func(ev watch.EventType, _ *corev1.ConfigMap) bool { return ev == watch.Deleted })
	var gone corev1.PersistentVolumeClaim
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(j), &gone); !apierrors.IsNotFound(err) {
		t.Errorf("the claim is still there: %v", err)
	}
}

// TestOwnedClaimsAreCollected has no operator running: the garbage collector does it.
func TestOwnedClaimsAreCollected(t *testing.T) {
	c := direct(t)
	ns := namespace(t, c)
	j := journal(ns, "b", "1Gi")
	if err := c.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	owned := journal(ns, "owned", "1Gi")
	owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	if err := c.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": "owned"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := c.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	limit := time.After(2 * time.Minute)
	for {
		select {
		case ev := <-w.ResultChan():
			if ev.Type == watch.Deleted {
				return
			}
		case <-limit:
			t.Fatal("the owned object was not collected")
		}
	}
}

// TestOneManagerLeads has two managers; the second takes over when the first stops.
func TestOneManagerLeads(t *testing.T) {
	c := direct(t)
	ns := namespace(t, c)
	election := func() ctrl.Options {
		return ctrl.Options{LeaderElection: true, LeaderElectionID: "journal", LeaderElectionNamespace: ns, LeaderElectionReleaseOnCancel: true}
	}
	first, stop := manage(t, election())
	<-first.Elected()
	quick := time.Second
	o := election()
	o.RetryPeriod = &quick
	second, _ := manage(t, o)
	if err := c.Create(t.Context(), journal(ns, "c", "1Gi")); err != nil {
		t.Fatal(err)
	}
	until(t, c, ns, "c", bound)
	select {
	case <-second.Elected():
		t.Fatal("two managers lead")
	default:
	}
	stop()
	<-second.Elected()
	if err := c.Create(t.Context(), journal(ns, "d", "1Gi")); err != nil {
		t.Fatal(err)
	}
	until(t, c, ns, "d", bound)
}

// TestConflictsAreSeen goes through the verbs of controller-runtime's client.
func TestConflictsAreSeen(t *testing.T) {
	c := direct(t)
	ns := namespace(t, c)
	j := journal(ns, "e", "1Gi")
	j.Labels = nil // not the operator's
	if err := c.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	stale := j.DeepCopy()
	j.Data["x"] = "1"
	if err := c.Update(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	stale.Data["x"] = "2"
	if err := c.Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	if err := c.Patch(t.Context(), stale, client.MergeFromWithOptions(j, client.MergeFromWithOptimisticLock{})); err != nil {
		t.Errorf("a patch on the current version: %v", err)
	}
	if err := c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": "e"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(j), j); !apierrors.IsNotFound(err) {
		t.Errorf("after DeleteAllOf: %v", err)
	}
}
