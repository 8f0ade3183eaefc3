package registry

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/quota"
)

// shelf is a Reader over a few lists.
type shelf map[schema.GroupResource][]runtime.Object

func (s shelf) Get(gr schema.GroupResource, _, name string) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(gr, name)
}
func (s shelf) List(gr schema.GroupResource, _ string) []runtime.Object { return s[gr] }

func sized(name, size, class string) *corev1.PersistentVolumeClaim {
	c := claimOf(name)
	c.Namespace, c.Spec.StorageClassName = "n", &class
	c.Spec.Resources.Requests[corev1.ResourceStorage] = apiresource.MustParse(size)
	return c
}

func TestQuotaOfStorage(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"requests.storage": apiresource.MustParse("10Gi"), "persistentvolumeclaims": apiresource.MustParse("3"),
		"gold.storageclass.storage.k8s.io/requests.storage": apiresource.MustParse("5Gi"), "count/persistentvolumeclaims": apiresource.MustParse("9"),
	}}}
	have := shelf{corev1.Resource("resourcequotas"): {q}, claimResource: {sized("a", "4Gi", "gold"), sized("b", "2Gi", "tin")}}
	used := quota.Used(q, func(gr schema.GroupResource) []runtime.Object { return have[gr] }, []schema.GroupResource{claimResource})
	for name, want := range map[corev1.ResourceName]string{"requests.storage": "6Gi", "persistentvolumeclaims": "2", "gold.storageclass.storage.k8s.io/requests.storage": "4Gi", "count/persistentvolumeclaims": "2"} {
		if n := used[name]; n.Cmp(apiresource.MustParse(want)) != 0 {
			t.Errorf("used %s is %s, want %s", name, n.String(), want)
		}
	}
	for _, c := range []struct {
		name     string
		obj, old *corev1.PersistentVolumeClaim
		want     string
	}{
		{"fits", sized("c", "4Gi", "tin"), nil, ""},
		{"too much", sized("c", "5Gi", "tin"), nil, `persistentvolumeclaims "c" is forbidden: exceeded quota: q, requested: requests.storage=5Gi, used: requests.storage=6Gi, limited: requests.storage=10Gi`},
		{"too much of a class", sized("c", "2Gi", "gold"), nil, "exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi, used: gold.storageclass.storage.k8s.io/requests.storage=4Gi, limited: gold.storageclass.storage.k8s.io/requests.storage=5Gi"},
		{"grows within", sized("b", "6Gi", "tin"), sized("b", "2Gi", "tin"), ""},
		{"grows beyond", sized("b", "7Gi", "tin"), sized("b", "2Gi", "tin"), "requested: requests.storage=5Gi"},
	} {
		a := Attributes{Resource: persistentVolumeClaims(Options{}), Operation: opCreate, Namespace: "n", Name: c.obj.Name, Obj: c.obj, Reader: have}
		if c.old != nil {
			a.Old, a.Operation = c.old, opUpdate
		}
		err := newAdmission(Options{}).(plugins).each(a, func(p plugin) error {
			if p.validate == nil || a.Operation == opUpdate && p.resource == claimResource {
				return nil
			}
			return p.validate(context.Background(), a)
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestLimitRanges(t *testing.T) {
	l := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePersistentVolumeClaim, Min: corev1.ResourceList{"storage": apiresource.MustParse("1Gi")}, Max: corev1.ResourceList{"storage": apiresource.MustParse("2Gi")}},
		{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": apiresource.MustParse("1")}, DefaultRequest: corev1.ResourceList{"cpu": apiresource.MustParse("500m")}, Max: corev1.ResourceList{"cpu": apiresource.MustParse("2")}},
	}}}
	have := shelf{corev1.Resource("limitranges"): {l}}
	for size, want := range map[string]string{
		"1Gi": "", "3Gi": "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi", "1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
	} {
		err := withinLimits(context.Background(), Attributes{Resource: persistentVolumeClaims(Options{}), Namespace: "n", Obj: sized("c", size, "x"), Reader: have})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", size, err)
		}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template().Spec}
	a := Attributes{Resource: pods(Options{}), Namespace: "n", Obj: p, Reader: have}
	if err := limitDefaults(context.Background(), a); err != nil || p.Spec.Containers[0].Resources.Requests.Cpu().String() != "500m" || p.Annotations["kubernetes.io/limit-ranger"] != "LimitRanger plugin set: cpu request for container c; cpu limit for container c" {
		t.Errorf("defaults: %v %+v %v", err, p.Spec.Containers[0].Resources, p.Annotations)
	}
	p.Spec.Containers[0].Resources.Limits["cpu"] = apiresource.MustParse("3")
	if err := withinLimits(context.Background(), a); err == nil || !strings.Contains(err.Error(), "maximum cpu usage per Container is 2, but limit is 3") {
		t.Errorf("too much: %v", err)
	}
}
