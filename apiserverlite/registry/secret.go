package registry

import (
	"context"
	"crypto/tls"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

func secrets() *Resource {
	return resource(kind[core.Secret, core.SecretList]{
		gvk: corev1.SchemeGroupVersion.WithKind("Secret"), plural: "secrets",
		object: alloc[corev1.Secret](), list: alloc[corev1.SecretList](),
		rules: rules[core.Secret]{
			unconditional: true,
			validate:      validation.ValidateSecret,
			warnCreate:    func(_ context.Context, s *core.Secret) []string { return secretWarnings(s) },
			prepareUpdate: func(s, old *core.Secret) {
				if s.Type == "" { // a writer that does not know the type keeps it
					s.Type = old.Type
				}
			},
			validateUpdate: validation.ValidateSecretUpdate,
			warnUpdate:     func(_ context.Context, s, _ *core.Secret) []string { return secretWarnings(s) },
		},
		fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
		},
	})
}

// secretWarnings tells of a TLS secret whose pair does not fit together.
func secretWarnings(s *core.Secret) []string {
	if s.Type != core.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[core.TLSCertKey], s.Data[core.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
