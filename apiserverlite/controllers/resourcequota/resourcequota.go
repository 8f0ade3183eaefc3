// Package resourcequota keeps the status of ResourceQuotas: the hard limits as they were understood, and what is used.
// Admission does not read it; it reckons anew for each write.
//
// A quota is reckoned when it changes, and when a pod, a claim, a service, a ConfigMap or a Secret of its
// namespace comes, goes or takes more or less. Objects of other kinds ("count/leases.coordination.k8s.io") are counted on the same
// occasions, by a list.
package resourcequota

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/quota"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "resourcequota"

var (
	pods     = corev1.Resource("pods")
	claims   = corev1.Resource("persistentvolumeclaims")
	services = corev1.Resource("services")
)

// Controller reckons. Make it with New.
type Controller struct {
	env      control.Env
	quotas   corelisters.ResourceQuotaLister
	pods     corelisters.PodLister
	claims   corelisters.PersistentVolumeClaimLister
	services corelisters.ServiceLister
	queue    control.Queue[types.NamespacedName]

	followers map[schema.GroupResource]*follower // of the worker alone
	redefined atomic.Bool                        // kinds have come or gone
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:      env,
		quotas:   core.ResourceQuotas().Lister(),
		pods:     core.Pods().Lister(),
		claims:   core.PersistentVolumeClaims().Lister(),
		services: core.Services().Lister(),
		queue:    control.NewQueue[types.NamespacedName](env),

		followers: map[schema.GroupResource]*follower{},
	}
	control.Register(core.ResourceQuotas().Informer(), control.On[*corev1.ResourceQuota]{
		Add: c.add,
		Update: func(old, q *corev1.ResourceQuota) {
			// The status too, though it is this controller that writes it: a round that was worked out before the
			// write was seen may have found that nothing was to be written.
			if !equality.Semantic.DeepEqual(old.Spec, q.Spec) || !equality.Semantic.DeepEqual(old.Status, q.Status) {
				c.add(q)
			}
		},
	})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: func(p *corev1.Pod) { c.changed(p.Namespace) }, Delete: func(p *corev1.Pod) { c.changed(p.Namespace) },
		Update: func(old, p *corev1.Pod) {
			if old.Status.Phase != p.Status.Phase || !equality.Semantic.DeepEqual(old.Spec, p.Spec) {
				c.changed(p.Namespace)
			}
		},
	})
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Add: func(o *corev1.PersistentVolumeClaim) { c.changed(o.Namespace) }, Delete: func(o *corev1.PersistentVolumeClaim) { c.changed(o.Namespace) },
		Update: func(old, o *corev1.PersistentVolumeClaim) {
			if !equality.Semantic.DeepEqual(quota.Usage(claims, old), quota.Usage(claims, o)) || !equality.Semantic.DeepEqual(old.Spec, o.Spec) {
				c.changed(o.Namespace)
			}
		},
	})
	control.Register(core.Services().Informer(), control.On[*corev1.Service]{
		Add: func(s *corev1.Service) { c.changed(s.Namespace) }, Delete: func(s *corev1.Service) { c.changed(s.Namespace) },
	})
	control.Register(core.ConfigMaps().Informer(), control.On[*corev1.ConfigMap]{
		Add: func(m *corev1.ConfigMap) { c.changed(m.Namespace) }, Delete: func(m *corev1.ConfigMap) { c.changed(m.Namespace) },
	})
	control.Register(core.Secrets().Informer(), control.On[*corev1.Secret]{
		Add: func(x *corev1.Secret) { c.changed(x.Namespace) }, Delete: func(x *corev1.Secret) { c.changed(x.Namespace) },
	})
	return c
}

// Run reckons until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, f := range c.followers {
			f.stop()
		}
	}()
	control.Work(ctx, c.env, 1, c.queue, c.sync)
}

func (c *Controller) add(q *corev1.ResourceQuota) {
	c.queue.Add(types.NamespacedName{Namespace: q.Namespace, Name: q.Name})
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	q, err := c.quotas.ResourceQuotas(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	used := quota.Used(q, func(gr schema.GroupResource) []runtime.Object { return c.list(gr, q.Namespace) }, []schema.GroupResource{pods, claims, services})
	for name := range q.Spec.Hard {
		if gr, other := otherKind(name); other {
			n, err := c.count(ctx, gr, q.Namespace)
			if err != nil {
				return fmt.Errorf("quota %s: %w", key, err)
			}
			used[name] = *apiresource.NewQuantity(n, apiresource.DecimalSI)
		}
	}
	status := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: used}
	if equality.Semantic.DeepEqual(status, q.Status) {
		return nil
	}
	q = q.DeepCopy()
	q.Status = status
	if _, err := c.env.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("quota %s: write status: %w", key, err)
	}
	return nil
}

// list shows the informers' objects to the arithmetic.
func (c *Controller) list(gr schema.GroupResource, namespace string) []runtime.Object {
	var list any
	switch gr {
	case pods:
		list, _ = c.pods.Pods(namespace).List(labels.Everything())
	case claims:
		list, _ = c.claims.PersistentVolumeClaims(namespace).List(labels.Everything())
	case services:
		list, _ = c.services.Services(namespace).List(labels.Everything())
	}
	return objects(list)
}

func objects(list any) []runtime.Object {
	var out []runtime.Object
	switch l := list.(type) {
	case []*corev1.Pod:
		for _, o := range l {
			out = append(out, o)
		}
	case []*corev1.PersistentVolumeClaim:
		for _, o := range l {
			out = append(out, o)
		}
	case []*corev1.Service:
		for _, o := range l {
			out = append(out, o)
		}
	}
	return out
}
