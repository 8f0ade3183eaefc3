package sidecar

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// Other clients of the process use client-go's scheme while a provisioner starts. The
// race detector, or the runtime's own, ends this test when the scheme is written meanwhile.
func TestProvisionerLeavesTheSchemeAlone(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := clientscheme.Scheme.New(corev1.SchemeGroupVersion.WithKind("Pod")); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 3 {
		w.run("provisioner", RunProvisioner)()
	}
	close(stop)
	readers.Wait()
}

func TestOtherSchemesAreStillFilled(t *testing.T) {
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.New(corev1.SchemeGroupVersion.WithKind("Pod")); err != nil {
		t.Fatal(err)
	}
}
