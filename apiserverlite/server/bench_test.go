package server

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// BenchmarkUpdate is one status update of a claim over loopback, by one of our components and by a stranger.
func BenchmarkUpdate(b *testing.B) {
	for _, agent := range []string{"drydock-kubelet/n1", "other/1"} {
		b.Run(agent[:5], func(b *testing.B) {
			f := startReal(b, tempDB(b))
			cfg := f.config()
			cfg.UserAgent = agent
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				b.Fatal(err)
			}
			c := client.CoreV1().PersistentVolumeClaims("default")
			pvc, err := c.Create(context.Background(), pvcOf("a", "1Gi"), metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				pvc.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "X", Status: corev1.ConditionTrue, Message: fmt.Sprint(i)}}
				if pvc, err = c.UpdateStatus(context.Background(), pvc, metav1.UpdateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFanOut is one write and its delivery to 50 watchers.
func BenchmarkFanOut(b *testing.B) {
	f := startReal(b, tempDB(b))
	c := f.typed(b).CoreV1().PersistentVolumeClaims("default")
	pvc, err := c.Create(context.Background(), pvcOf("a", "1Gi"), metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var ws []watch.Interface
	for range 50 {
		w, err := c.Watch(context.Background(), metav1.ListOptions{ResourceVersion: pvc.ResourceVersion})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
		ws = append(ws, w)
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		pvc.Labels = map[string]string{"n": fmt.Sprint(i)}
		if pvc, err = c.Update(context.Background(), pvc, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		for _, w := range ws {
			<-w.ResultChan()
		}
	}
}
