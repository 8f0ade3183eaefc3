package registry

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// mountableSecretsAnnotation limits a service account's pods to its own secrets; upstream has deprecated it.
const mountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

func serviceAccounts() *Resource {
	return resource(kind[core.ServiceAccount, core.ServiceAccountList]{
		gvk: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), plural: "serviceaccounts", shortNames: []string{"sa"},
		object: alloc[corev1.ServiceAccount](), list: alloc[corev1.ServiceAccountList](),
		rules: rules[core.ServiceAccount]{
			unconditional:  true,
			prepareCreate:  secretNamesOnly,
			validate:       validation.ValidateServiceAccount,
			warnCreate:     func(_ context.Context, sa *core.ServiceAccount) []string { return serviceAccountWarnings(sa, nil) },
			prepareUpdate:  func(sa, _ *core.ServiceAccount) { secretNamesOnly(sa) },
			validateUpdate: validation.ValidateServiceAccountUpdate,
			warnUpdate: func(_ context.Context, sa, old *core.ServiceAccount) []string {
				return serviceAccountWarnings(sa, old)
			},
		},
		others: map[string]Subresource{
			"token": {Verbs: []string{"create"}, GVK: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")},
		},
	})
}

// secretNamesOnly reduces references to secrets to their names.
func secretNamesOnly(sa *core.ServiceAccount) {
	for i, s := range sa.Secrets {
		sa.Secrets[i] = core.ObjectReference{Name: s.Name}
	}
}

func serviceAccountWarnings(sa, old *core.ServiceAccount) []string {
	if old != nil {
		if _, known := old.Annotations[mountableSecretsAnnotation]; known {
			return nil
		}
	}
	if _, ok := sa.Annotations[mountableSecretsAnnotation]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets", mountableSecretsAnnotation)}
}
