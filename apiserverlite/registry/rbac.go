package registry

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbachelpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/rbac/validation"
)

// rbacKinds decide who may do what where the server is told to ask them.
func rbacKinds(Options) []*Resource {
	return []*Resource{
		rbacKind[rbac.ClusterRoleBinding, rbac.ClusterRoleBindingList]("ClusterRoleBinding", "clusterrolebindings", true,
			alloc[rbacv1.ClusterRoleBinding](), alloc[rbacv1.ClusterRoleBindingList](), validation.ValidateClusterRoleBinding, validation.ValidateClusterRoleBindingUpdate),
		rbacKind[rbac.ClusterRole, rbac.ClusterRoleList]("ClusterRole", "clusterroles", true,
			alloc[rbacv1.ClusterRole](), alloc[rbacv1.ClusterRoleList](), newClusterRole, changedClusterRole),
		rbacKind[rbac.RoleBinding, rbac.RoleBindingList]("RoleBinding", "rolebindings", false,
			alloc[rbacv1.RoleBinding](), alloc[rbacv1.RoleBindingList](), validation.ValidateRoleBinding, validation.ValidateRoleBindingUpdate),
		rbacKind[rbac.Role, rbac.RoleList]("Role", "roles", false,
			alloc[rbacv1.Role](), alloc[rbacv1.RoleList](), validation.ValidateRole, validation.ValidateRoleUpdate),
	}
}

func rbacKind[T, L any, P pointer[T], Q pointer[L]](name, plural string, cluster bool, object, list func() runtime.Object,
	validate func(*T) field.ErrorList, update func(obj, old *T) field.ErrorList) *Resource {
	return resource[T, L, P, Q](kind[T, L]{
		gvk: rbacv1.SchemeGroupVersion.WithKind(name), plural: plural, cluster: cluster, object: object, list: list,
		rules: rules[T]{createOnUpdate: true, unconditional: true, validate: validate, validateUpdate: update},
	})
}

// RuleText is a rule in the words of upstream's refusals.
func RuleText(r rbacv1.PolicyRule) string { return rbachelpers.CompactString(r) }

func newClusterRole(r *rbac.ClusterRole) field.ErrorList {
	return validation.ValidateClusterRole(r, validation.ClusterRoleValidationOptions{})
}

func changedClusterRole(r, old *rbac.ClusterRole) field.ErrorList {
	bad := old.AggregationRule != nil && slices.ContainsFunc(old.AggregationRule.ClusterRoleSelectors, func(s metav1.LabelSelector) bool { return badSelector(&s) })
	return validation.ValidateClusterRoleUpdate(r, old, validation.ClusterRoleValidationOptions{AllowInvalidLabelValueInSelector: bad})
}
