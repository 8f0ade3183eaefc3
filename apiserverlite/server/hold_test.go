package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestQuotaHoldsUnderConcurrency lets many create at once what a quota has little room for: it is used up, and not exceeded.
func TestQuotaHoldsUnderConcurrency(t *testing.T) {
	f := startReal(t, "")
	c := f.typed(t)
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/configmaps": apiresource.MustParse("10"), "requests.storage": apiresource.MustParse("7Gi")}}}
	if _, err := c.CoreV1().ResourceQuotas("default").Create(ctx, q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var maps, claims atomic.Int32
	for i := range 40 {
		wg.Go(func() {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}
			if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err == nil {
				maps.Add(1)
			} else if !apierrors.IsForbidden(err) {
				t.Errorf("configmap: %v", err)
			}
			p := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}}}}
			if _, err := c.CoreV1().PersistentVolumeClaims("default").Create(ctx, p, metav1.CreateOptions{}); err == nil {
				claims.Add(1)
			} else if !apierrors.IsForbidden(err) {
				t.Errorf("claim: %v", err)
			}
		})
	}
	wg.Wait()
	if maps.Load() != 10 || claims.Load() != 7 {
		t.Errorf("%d configmaps of 10 and %d claims of 7", maps.Load(), claims.Load())
	}
	if n := len(f.quotaTurns.line); n != 0 {
		t.Errorf("%d turns are still held", n)
	}
}

func TestTurnsAreGivenUp(t *testing.T) {
	var line turns
	done, err := line.take(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := line.take(ctx, "b") // another namespace does not wait
	if err != nil {
		t.Fatal(err)
	}
	other()
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := line.take(impatient, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("took a turn that is held: %v", err)
	}
	done()
	if len(line.line) != 0 {
		t.Errorf("left over: %v", line.line)
	}
}
