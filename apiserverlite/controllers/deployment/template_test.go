package deployment

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOldestSetOfATemplateIsMeant: two sets can have one template, as when somebody made a copy of one.
func TestOldestSetOfATemplateIsMeant(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "n"}}
	set := func(name, revision string, age time.Duration) *appsv1.ReplicaSet {
		s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)), Annotations: map[string]string{revisionAnnotation: revision}}}
		s.Spec.Template = *template.DeepCopy()
		s.Spec.Template.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: name}
		return s
	}
	other := set("other", "1", time.Hour)
	other.Spec.Template.Spec.NodeName = "m"
	for _, c := range []struct {
		sets []*appsv1.ReplicaSet
		want int
	}{
		{[]*appsv1.ReplicaSet{other}, -1},
		{[]*appsv1.ReplicaSet{other, set("copy", "1", 0), set("first", "2", time.Minute)}, 2},
		{[]*appsv1.ReplicaSet{set("b", "1", 0), set("a", "2", 0)}, 1},
	} {
		if got := ofTemplate(c.sets, &template); got != c.want {
			t.Errorf("%d, want %d of %v", got, c.want, c.sets)
		}
	}
}
