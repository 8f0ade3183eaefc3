package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

func configMaps() *Resource {
	return resource(kind[core.ConfigMap, core.ConfigMapList]{
		gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), plural: "configmaps", shortNames: []string{"cm"},
		object: alloc[corev1.ConfigMap](), list: alloc[corev1.ConfigMapList](),
		rules: rules[core.ConfigMap]{unconditional: true, validate: validation.ValidateConfigMap, validateUpdate: validation.ValidateConfigMapUpdate},
	})
}
