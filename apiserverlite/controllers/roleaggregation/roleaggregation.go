// Package roleaggregation writes into each ClusterRole that gathers others, by their labels, the rules of those: in the order of their
// names, each rule once, and nothing else. A change of any role is enough to look at all that gather.
package roleaggregation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "roleaggregation"

// Controller gathers. Make it with New.
type Controller struct {
	env   control.Env
	roles rbaclisters.ClusterRoleLister
	queue control.Queue[string]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	roles := env.Informers.Rbac().V1().ClusterRoles()
	c := &Controller{env: env, roles: roles.Lister(), queue: control.NewQueue[string](env)}
	control.Register(roles.Informer(), control.On[*rbacv1.ClusterRole]{Any: func(*rbacv1.ClusterRole) { c.look() }})
	return c
}

// Run gathers until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, 1, c.queue, c.sync) }

func (c *Controller) look() {
	all, err := c.roles.List(labels.Everything())
	if err != nil {
		return
	}
	for _, r := range all {
		if r.AggregationRule != nil {
			c.queue.Add(r.Name)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	r, err := c.roles.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if r.AggregationRule == nil {
		return nil
	}
	rules := []rbacv1.PolicyRule{}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil // the API lets no such role in
		}
		parts, err := c.roles.List(selector)
		if err != nil {
			return err
		}
		slices.SortFunc(parts, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
		for _, p := range parts {
			for _, rule := range p.Rules {
				if p.Name != name && !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	if equality.Semantic.DeepEqual(rules, r.Rules) {
		return nil
	}
	r = r.DeepCopy()
	r.Rules = rules
	if _, err := c.env.Client.RbacV1().ClusterRoles().Update(ctx, r, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("role %s: write the rules of its parts: %w", name, err)
	}
	return nil
}
