package server

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/storage"
)

// aggregateTo and the name of a role is the label by which others become part of it.
const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// defaultRoles are the roles that manifests refer to without bringing them, with upstream's names, and
// the two that let every known user discover what there is and ask about itself.
func defaultRoles() []runtime.Object {
	all, read := []string{"*"}, []string{"get", "list", "watch"}
	own := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	groups := []string{"", "apps", "autoscaling", "batch", "policy", "snapshot.storage.k8s.io", "events.k8s.io", "coordination.k8s.io"}
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}}, Rules: rules}
	}
	// gathers makes a role of those that are labelled for it; it is itself part of the next greater one.
	gathers := func(name, into string) *rbacv1.ClusterRole {
		r := role(name)
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
		if into != "" {
			r.Labels[aggregateTo+into] = "true"
		}
		return r
	}
	part := func(of string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := role("system:aggregate-to-"+of, rules...)
		r.Labels[aggregateTo+of] = "true"
		return r
	}
	bind := func(name, group string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}}
	}
	// What a namespace's users work with. Secrets are not for those who only look.
	plain := []string{"configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "pods/log", "pods/status", "replicationcontrollers", "replicationcontrollers/status", "serviceaccounts", "services",
		"deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "cronjobs", "horizontalpodautoscalers", "poddisruptionbudgets", "volumesnapshots"}
	bounds := rbacv1.PolicyRule{Verbs: read, APIGroups: []string{""}, Resources: []string{"limitranges", "namespaces", "resourcequotas", "resourcequotas/status"}}
	change := append([]string{"secrets", "pods/eviction", "deployments/scale", "replicasets/scale", "replicationcontrollers/scale", "statefulsets/scale"}, plain...)
	rolesOf := rbacv1.PolicyRule{Verbs: own, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}}
	return []runtime.Object{
		role("cluster-admin", rbacv1.PolicyRule{Verbs: all, APIGroups: all, Resources: all}, rbacv1.PolicyRule{Verbs: all, NonResourceURLs: all}),
		gathers("admin", ""),
		gathers("edit", "admin"),
		gathers("view", "edit"),
		part("admin", rolesOf),
		part("edit", rbacv1.PolicyRule{Verbs: own, APIGroups: groups, Resources: change}),
		part("view", rbacv1.PolicyRule{Verbs: read, APIGroups: groups, Resources: plain}, bounds),
		role("system:discovery", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/", "/api", "/api/*", "/apis", "/apis/*",
			"/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"}}),
		role("system:basic-user",
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
			rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}}),
		bind("cluster-admin", privileged),
		bind("system:discovery", "system:authenticated"),
		bind("system:basic-user", "system:authenticated"),
	}
}

// bootstrapRoles creates the default roles as far as they are missing.
func (s *Server) bootstrapRoles(ctx context.Context) error {
	if s.cfg.Authorization != RBAC {
		return nil
	}
	for _, o := range defaultRoles() {
		key := storage.Key{Resource: clusterRoles}
		switch r := o.(type) {
		case *rbacv1.ClusterRole:
			key.Name = r.Name
		case *rbacv1.ClusterRoleBinding:
			key.Resource, key.Name = clusterRoleBindings, r.Name
		}
		res, ok := s.byStorage[key.Resource]
		if !ok {
			return fmt.Errorf("bootstrap %s: no resource serves it", key)
		}
		if _, exists := s.store.Get(key); exists {
			continue
		}
		o.GetObjectKind().SetGroupVersionKind(res.GVK)
		w := &writing{s: s, res: res, strategy: res.Strategy, untracked: true}
		if _, err := w.create(ctx, o); err != nil {
			return fmt.Errorf("bootstrap %s: %w", key, err)
		}
	}
	return nil
}
