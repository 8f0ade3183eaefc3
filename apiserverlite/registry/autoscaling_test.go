package registry_test

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const scalerDoc = `
metadata: {name: h, namespace: ns}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}
  maxReplicas: 4
`

func TestAutoscalersAreDefaulted(t *testing.T) {
	for _, x := range []struct{ name, doc, want string }{
		{"least", scalerDoc, "minReplicas: 1\ngeneration: 1\naverageUtilization: 80\nname: cpu\ntype: Utilization"},
		{"with behaviour", scalerDoc + "  behavior: {scaleUp: {stabilizationWindowSeconds: 5}}", "stabilizationWindowSeconds: 5\nselectPolicy: Max\nperiodSeconds: 15\nvalue: 100\nvalue: 4"},
		{"with a status", scalerDoc + "status: {currentReplicas: 3, desiredReplicas: 3}", "desiredReplicas: 0\n!currentReplicas: 3"},
	} {
		obj, errs := create(t, find(t, "horizontalpodautoscalers"), x.doc)
		if len(errs) > 0 {
			t.Fatal(x.name, errs)
		}
		b, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		for w := range strings.SplitSeq(x.want, "\n") {
			if not, absent := strings.CutPrefix(w, "!"); absent && strings.Contains(string(b), not) || !absent && !strings.Contains(string(b), w) {
				t.Errorf("%s: %q:\n%s", x.name, w, b)
			}
		}
	}
}

// TestInvalidAutoscalers has upstream's texts.
func TestInvalidAutoscalers(t *testing.T) {
	metric := func(m string) string { return scalerDoc + "  metrics: [" + m + "]" }
	behave := func(b string) string { return scalerDoc + "  behavior: {scaleDown: {" + b + "}}" }
	for _, x := range []struct {
		name, doc string
		want      []string
	}{
		{"nothing", `{metadata: {name: h, namespace: ns}}`, []string{"spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`", "spec.maxReplicas: Required value", "spec.scaleTargetRef.kind: Required value", "spec.scaleTargetRef.name: Required value",
			`spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group`}},
		{"less than the least", scalerDoc + "  minReplicas: 5", []string{"spec.maxReplicas: Invalid value: 4: must be greater than or equal to `minReplicas`"}},
		{"negative", strings.Replace(scalerDoc, "4", "-1", 1) + "  minReplicas: -1", []string{"spec.minReplicas: Invalid value: -1: must be greater than or equal to 0", "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1"}},
		{"to zero by use", scalerDoc + "  minReplicas: 0", []string{"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		{"to zero by a queue", metric("{type: External, external: {metric: {name: q}, target: {type: Value, value: 3}}}") + "\n  minReplicas: 0", nil},
		{"a bad version", strings.Replace(scalerDoc, "apps/v1", "a/b/c", 1), []string{"spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"}},
		{"a controller of the core group", strings.Replace(scalerDoc, "apiVersion: apps/v1, kind: Deployment", "apiVersion: v1, kind: ReplicationController", 1), nil},
		{"no metric", metric("{type: Pods}"), []string{"spec.metrics[0].pods: Required value: must populate information for the given metric source"}},
		{"an unknown metric", metric("{type: Moon}"), []string{`spec.metrics[0].type: Unsupported value: "Moon"`}},
		{"two metrics in one", metric("{type: Pods, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1}}, resource: {name: cpu, target: {type: Utilization, averageUtilization: 1}}}"),
			[]string{"spec.metrics[0].resource: Forbidden: must populate the given metric source only"}},
		{"a resource of no target", metric("{type: Resource, resource: {name: cpu, target: {type: Utilization}}}"), []string{"spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"}},
		{"a resource of two targets", metric("{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 0, averageValue: 0}}}"),
			[]string{"target.averageValue: Invalid value", "target.averageUtilization: Invalid value: 0: must be greater than 0", "target.averageValue: Forbidden: may not set both"}},
		{"an object that is none", metric("{type: Object, object: {describedObject: {kind: a/b}, metric: {name: ''}, target: {type: X}}}"),
			[]string{`describedObject.kind: Invalid value: "a/b"`, "describedObject.name: Required value", "metric.name: Required value: must specify a metric name",
				`target.type: Invalid value: "X": must be either Utilization, Value, or AverageValue`, "target.averageValue: Required value: must set either a target value or averageValue"}},
		{"no policies", behave("policies: [], stabilizationWindowSeconds: 4000, selectPolicy: Some"), []string{"scaleDown.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600",
			`scaleDown.selectPolicy: Unsupported value: "Some": supported values: "Disabled", "Max", "Min"`, "scaleDown.policies: Required value: must specify at least one Policy"}},
		{"bad policies", behave("tolerance: -1, policies: [{type: Half, value: 0, periodSeconds: 0}, {type: Pods, value: 1, periodSeconds: 1801}]"), []string{
			`policies[0].type: Unsupported value: "Half": supported values: "Percent", "Pods"`, "policies[0].value: Invalid value: 0: must be greater than zero", "policies[0].periodSeconds: Invalid value: 0: must be greater than zero",
			"policies[1].periodSeconds: Invalid value: 1801: must be less than or equal to 1800", "scaleDown.tolerance: Invalid value"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, errs := create(t, find(t, "horizontalpodautoscalers"), x.doc)
			expect(t, errs, x.want...)
		})
	}
}

// TestAutoscalersInTwoVersions: the older one keeps in annotations what it has no fields for.
func TestAutoscalersInTwoVersions(t *testing.T) {
	second, ok := reg(t).Lookup(autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"))
	if !ok {
		t.Fatal("autoscaling/v1 is not served")
	}
	obj, errs := create(t, find(t, "horizontalpodautoscalers"), scalerDoc+`
  metrics:
  - {type: Pods, pods: {metric: {name: hits}, target: {type: AverageValue, averageValue: 5}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	old, err := second.FromStorage(obj)
	if err != nil {
		t.Fatal(err)
	}
	h := old.(*autoscalingv1.HorizontalPodAutoscaler)
	if ptr.Deref(h.Spec.TargetCPUUtilizationPercentage, 0) != 70 || !strings.Contains(h.Annotations["autoscaling.alpha.kubernetes.io/metrics"], "hits") {
		t.Errorf("the older version: %+v", h)
	}
	back, err := second.ToStorage(old)
	if err != nil {
		t.Fatal(err)
	}
	a, b := obj.(*autoscalingv2.HorizontalPodAutoscaler), back.(*autoscalingv2.HorizontalPodAutoscaler)
	if !equality.Semantic.DeepEqual(a.Spec, b.Spec) || len(b.Annotations) > 0 {
		t.Errorf("there and back:\n%+v\n%+v", a, b)
	}
}

func TestAutoscalerGenerationAndStatus(t *testing.T) {
	r := find(t, "horizontalpodautoscalers")
	old, errs := create(t, r, scalerDoc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got, errs := update(t, r, "", old, func(o runtime.Object) {
		h := o.(*autoscalingv2.HorizontalPodAutoscaler)
		h.Spec.MaxReplicas, h.Status.DesiredReplicas = 9, 9
	})
	if h := got.(*autoscalingv2.HorizontalPodAutoscaler); len(errs) > 0 || h.Generation != 2 || h.Status.DesiredReplicas != 0 {
		t.Errorf("%v %+v", errs, h)
	}
	got, errs = update(t, r, "status", old, func(o runtime.Object) {
		h := o.(*autoscalingv2.HorizontalPodAutoscaler)
		h.Spec.MaxReplicas, h.Status.DesiredReplicas = 9, -1
	})
	if h := got.(*autoscalingv2.HorizontalPodAutoscaler); h.Spec.MaxReplicas != 4 || h.Generation != 1 {
		t.Errorf("by the status: %+v", h)
	}
	expect(t, errs, "status.desiredReplicas: Invalid value: -1")
}
