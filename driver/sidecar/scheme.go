package sidecar

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// The provisioner's library registers the core types in client-go's scheme whenever a
// controller is made. They are there already; but writing them again, into maps
// without a lock, while other clients of this process encode and decode, crashes it.
// Hence registering is made to do nothing for that one scheme. This must happen while
// nothing runs yet, and so in the initialization of this package.
var _ = func() bool {
	register := corev1.AddToScheme
	corev1.AddToScheme = func(s *runtime.Scheme) error {
		if s == clientscheme.Scheme {
			return nil
		}
		return register(s)
	}
	return true
}()
