package registry_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/registry"
)

var (
	accounts   = corev1.Resource("serviceaccounts")
	classes    = storagev1.Resource("storageclasses")
	priorities = schedulingv1.Resource("priorityclasses")
	account    = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
)

func class(name string, age time.Duration, isDefault, grows bool) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}, AllowVolumeExpansion: ptr.To(grows)}
	if isDefault {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return c
}

// admit runs an operation's mutating plugins.
func admit(t *testing.T, a registry.Admission, plural string, obj, old runtime.Object, world memory) error {
	t.Helper()
	op := "CREATE"
	if old != nil {
		op = "UPDATE"
	}
	m, _ := meta.Accessor(obj)
	attrs := registry.Attributes{Resource: find(t, plural), Operation: op, Namespace: m.GetNamespace(), Name: m.GetName(), Obj: obj, Old: old, Reader: world}
	if err := a.Mutate(context.Background(), attrs); err != nil {
		return err
	}
	return a.Validate(context.Background(), attrs)
}

func TestClaimsGetTheNewestDefaultClass(t *testing.T) {
	a := reg(t).Admission()
	world := memory{classes: {class("old", time.Hour, true, false), class("b", 0, true, false), class("a", 0, true, false), class("plain", -time.Hour, false, false)}}
	claim := func() *corev1.PersistentVolumeClaim {
		return parse(t, find(t, "persistentvolumeclaims"), `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}`).(*corev1.PersistentVolumeClaim)
	}
	c := claim()
	if err := admit(t, a, "persistentvolumeclaims", c, nil, world); err != nil {
		t.Fatal(err)
	}
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != "a" {
		t.Errorf("class %v", c.Spec.StorageClassName)
	}
	if !slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") {
		t.Errorf("finalizers %v", c.Finalizers)
	}
	none := claim()
	none.Spec.StorageClassName = ptr.To("")
	if err := admit(t, a, "persistentvolumeclaims", none, nil, world); err != nil || *none.Spec.StorageClassName != "" {
		t.Errorf("a claim that wants no class gets %q, %v", *none.Spec.StorageClassName, err)
	}
	alone := claim()
	if err := admit(t, a, "persistentvolumeclaims", alone, nil, memory{}); err != nil || alone.Spec.StorageClassName != nil {
		t.Errorf("without a default class: %v, %v", alone.Spec.StorageClassName, err)
	}
}

func TestVolumesAreProtected(t *testing.T) {
	for plural, want := range map[string]string{"persistentvolumes": "kubernetes.io/pv-protection", "volumeattributesclasses": "kubernetes.io/vac-protection"} {
		obj := find(t, plural).New()
		for range 2 {
			if err := admit(t, reg(t).Admission(), plural, obj, nil, memory{}); err != nil {
				t.Fatal(err)
			}
		}
		m, _ := meta.Accessor(obj)
		if got := m.GetFinalizers(); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v", plural, got)
		}
	}
}

func TestOnlyWhatCanGrowGrows(t *testing.T) {
	world := memory{classes: {class("grows", 0, false, true), class("fixed", 0, false, false)}}
	for _, x := range []struct {
		class, want string
		phase       corev1.PersistentVolumeClaimPhase
	}{
		{"grows", "", corev1.ClaimBound},
		{"fixed", "only dynamically provisioned pvc can be resized", corev1.ClaimBound},
		{"missing", "only dynamically provisioned pvc can be resized", corev1.ClaimBound},
		{"", "only dynamically provisioned pvc can be resized", corev1.ClaimBound},
		{"grows", "Only bound persistent volume claims can be expanded", corev1.ClaimPending},
	} {
		old := parse(t, find(t, "persistentvolumeclaims"), claimDoc).(*corev1.PersistentVolumeClaim)
		old.Spec.StorageClassName, old.Status.Phase = ptr.To(x.class), x.phase
		next := old.DeepCopy()
		size("5Gi")(next)
		err := admit(t, reg(t).Admission(), "persistentvolumeclaims", next, old, world)
		if x.want == "" && err != nil || x.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func newPod(t *testing.T) *corev1.Pod {
	return parse(t, find(t, "pods"), `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: a, image: x}]}}`).(*corev1.Pod)
}

func TestPodsRunAsAServiceAccount(t *testing.T) {
	a := reg(t).Admission()
	p := newPod(t)
	if err := admit(t, a, "pods", p, nil, memory{accounts: {account}}); err != nil {
		t.Fatal(err)
	}
	if p.Spec.ServiceAccountName != "default" || p.Spec.DeprecatedServiceAccount != "default" || len(p.Spec.ImagePullSecrets) != 1 || len(p.Spec.Volumes) != 0 {
		t.Errorf("%+v", p.Spec)
	}
	if len(p.Spec.Tolerations) != 2 || *p.Spec.Tolerations[0].TolerationSeconds != 300 || *p.Spec.Priority != 0 || *p.Spec.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("tolerations %+v, priority %v", p.Spec.Tolerations, p.Spec.Priority)
	}
	p = newPod(t)
	p.Spec.ServiceAccountName = "nobody"
	err := admit(t, a, "pods", p, nil, memory{accounts: {account}})
	if want := `pods "p" is forbidden: error looking up service account ns/nobody: serviceaccount "nobody" not found`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	alone, err := registry.NewWith(registry.Options{NoControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	p = newPod(t)
	if err := admit(t, alone.Admission(), "pods", p, nil, memory{}); err != nil || p.Spec.ServiceAccountName != "default" {
		t.Errorf("where nobody makes accounts: %v, %q", err, p.Spec.ServiceAccountName)
	}
	p.Spec.ServiceAccountName = "nobody"
	if err := admit(t, alone.Admission(), "pods", p, nil, memory{accounts: {account}}); err == nil || err.Error() != `pods "p" is forbidden: error looking up service account ns/nobody: serviceaccount "nobody" not found` {
		t.Errorf("an account that somebody named: %v", err)
	}
	withToken, err := registry.NewWith(registry.Options{TokenVolume: true})
	if err != nil {
		t.Fatal(err)
	}
	p = newPod(t)
	if err := admit(t, withToken.Admission(), "pods", p, nil, memory{accounts: {account}}); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].Projected == nil || p.Spec.Containers[0].VolumeMounts[0].Name != p.Spec.Volumes[0].Name {
		t.Errorf("%+v", p.Spec)
	}
	find(t, "pods").Strategy.Default(p)
	if errs := find(t, "pods").Strategy.Validate(context.Background(), p); len(errs) > 0 {
		t.Error(errs)
	}
	p = newPod(t)
	p.Spec.AutomountServiceAccountToken = ptr.To(false)
	if err := admit(t, withToken.Admission(), "pods", p, nil, memory{accounts: {account}}); err != nil || len(p.Spec.Volumes) != 0 {
		t.Errorf("%v %+v", err, p.Spec.Volumes)
	}
}

// late is a Reader in which the default account comes after a few looks.
type late struct {
	memory
	looks *int
}

func (l late) Get(gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
	if *l.looks++; gr == accounts && *l.looks > 3 {
		return account, nil
	}
	return l.memory.Get(gr, namespace, name)
}

func TestAPodWaitsForTheDefaultAccount(t *testing.T) {
	p, looks := newPod(t), 0
	attrs := registry.Attributes{Resource: find(t, "pods"), Operation: "CREATE", Namespace: "ns", Name: "p", Obj: p, Reader: late{memory{}, &looks}}
	if err := reg(t).Admission().Mutate(context.Background(), attrs); err != nil || looks < 4 {
		t.Errorf("after %d looks: %v", looks, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	attrs.Reader = memory{}
	if err := reg(t).Admission().Mutate(ctx, attrs); !apierrors.IsForbidden(err) {
		t.Errorf("a request that has been given up: %v", err)
	}
}

func TestPriorityClasses(t *testing.T) {
	a := reg(t).Admission()
	world := memory{accounts: {account}, priorities: {
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 5, GlobalDefault: true},
	}}
	p := newPod(t)
	p.Spec.PriorityClassName = "high"
	if err := admit(t, a, "pods", p, nil, world); err != nil || *p.Spec.Priority != 100 || *p.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("%v %+v", err, p.Spec)
	}
	p = newPod(t)
	if err := admit(t, a, "pods", p, nil, world); err != nil || *p.Spec.Priority != 5 || p.Spec.PriorityClassName != "usual" {
		t.Errorf("%v %+v", err, p.Spec)
	}
	p = newPod(t)
	p.Spec.PriorityClassName = "low"
	if err := admit(t, a, "pods", p, nil, world); err == nil || !strings.Contains(err.Error(), "no PriorityClass with name low was found") {
		t.Error(err)
	}
	p = newPod(t)
	p.Spec.Priority = ptr.To[int32](7)
	if err := admit(t, a, "pods", p, nil, world); err == nil || !strings.Contains(err.Error(), "the integer value of priority (7) must not be provided in pod spec") {
		t.Error(err)
	}
	second := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, GlobalDefault: true}
	if err := admit(t, a, "priorityclasses", second, nil, world); err == nil || !strings.Contains(err.Error(), "PriorityClass usual is already marked as default") {
		t.Error(err)
	}
}

// What a cluster begins with passes the rules that everything else must pass.
func TestBootstrapIsValid(t *testing.T) {
	r, err := registry.NewWith(registry.Options{RootCA: "pem"})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, obj := range r.Bootstrap() {
		for _, res := range r.Resources() {
			if reflectSame(res.New(), obj) {
				count[res.GVR.Resource]++
				res.Strategy.Default(obj)
				res.Strategy.PrepareForCreate(context.Background(), obj)
				res.Strategy.Default(obj)
				if errs := res.Strategy.Validate(context.Background(), obj); len(errs) > 0 {
					t.Error(errs)
				}
			}
		}
	}
	if count["namespaces"] != 4 || count["serviceaccounts"] != 4 || count["configmaps"] != 4 || count["priorityclasses"] != 2 {
		t.Error(count)
	}
}
