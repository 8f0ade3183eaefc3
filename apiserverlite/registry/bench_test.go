package registry_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

const podDoc = `
metadata: {name: p, namespace: ns}
spec:
  nodeName: n1
  serviceAccountName: default
  containers:
  - {name: a, image: x, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`

const claimDoc = `
metadata: {name: c, namespace: ns}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
`

func BenchmarkWrites(b *testing.B) {
	ctx := context.Background()
	for _, x := range []struct{ name, plural, doc, sub string }{
		{"pod", "pods", podDoc, ""}, {"pod status", "pods", podDoc, "status"}, {"claim", "persistentvolumeclaims", claimDoc, ""},
	} {
		r := find(b, x.plural)
		old, errs := create(b, r, x.doc)
		if len(errs) > 0 {
			b.Fatal(errs)
		}
		s := r.Strategy
		if x.sub != "" {
			s = r.Subresources[x.sub].Strategy
		}
		b.Run(x.name+" update", func(b *testing.B) {
			for b.Loop() {
				obj := old.DeepCopyObject()
				r.Strategy.Default(obj)
				s.PrepareForUpdate(ctx, obj, old)
				s.ValidateUpdate(ctx, obj, old)
				s.WarningsOnUpdate(ctx, obj, old)
			}
		})
		b.Run(x.name+" default", func(b *testing.B) {
			for b.Loop() {
				r.Strategy.Default(old)
			}
		})
		b.Run(x.name+" table", func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Table(ctx, runtime.Object(old), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
