// Package namespace furnishes new namespaces with what every pod needs, and empties
// those that are being deleted.
//
// Furnishing: the service account "default" and the ConfigMap "kube-root-ca.crt". Both
// come back when somebody deletes them.
//
// Emptying: rounds over every resource that discovery knows. Pods go first; the rest
// follows once no pod is left, so that nothing is taken from under a running one. What
// remains after a round is watched, and its change starts the next round; conditions
// of the namespace say what remains and why. When nothing does, the finalizer
// "kubernetes" is taken off spec.finalizers.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "namespace"

const (
	accountName = "default"
	rootCAName  = "kube-root-ca.crt"
	workers     = 2
)

var (
	pointAccount = lab.Point{Component: "controllers", Name: "after a namespace has its service account, before its root certificate"}
	pointPods    = lab.Point{Component: "controllers", Name: "after a namespace's pods are deleted, before the rest"}
	pointEmpty   = lab.Point{Component: "controllers", Name: "after a namespace was found empty, before it is finalized"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointAccount, pointPods, pointEmpty} }

// Options of New.
type Options struct {
	// RootCA is the PEM text that kube-root-ca.crt carries.
	RootCA string
}

// Controller looks after namespaces. Make it with New.
type Controller struct {
	env        control.Env
	opts       Options
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
	accounts   corelisters.ServiceAccountLister
	configs    corelisters.ConfigMapLister
	queue      control.Queue[string]

	wg      sync.WaitGroup
	mu      sync.Mutex
	ending  map[string]chan struct{} // guarded by mu: namespaces being emptied; of one: look at the namespace again
	emptied context.Context          // of Run
}

// New registers the controller's handlers.
func New(env control.Env, opts Options) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env: env, opts: opts, client: env.Client,
		namespaces: core.Namespaces().Lister(),
		accounts:   core.ServiceAccounts().Lister(),
		configs:    core.ConfigMaps().Lister(),
		queue:      control.NewQueue[string](env),
		ending:     map[string]chan struct{}{},
	}
	control.Register(core.Namespaces().Informer(), control.On[*corev1.Namespace]{
		Add:    func(ns *corev1.Namespace) { c.queue.Add(ns.Name) },
		Update: func(_, ns *corev1.Namespace) { c.queue.Add(ns.Name) },
		Delete: func(ns *corev1.Namespace) { c.queue.Add(ns.Name) },
	})
	control.Register(core.ServiceAccounts().Informer(), control.On[*corev1.ServiceAccount]{
		Delete: func(a *corev1.ServiceAccount) {
			if a.Name == accountName {
				c.queue.Add(a.Namespace)
			}
		},
	})
	control.Register(core.ConfigMaps().Informer(), control.On[*corev1.ConfigMap]{
		Any: c.configChanged, // one that comes may be another's, with other contents
	})
	return c
}

func (c *Controller) configChanged(m *corev1.ConfigMap) {
	if m.Name == rootCAName {
		c.queue.Add(m.Namespace)
	}
}

// Run looks after namespaces until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	defer c.wg.Wait()
	c.emptied = ctx
	control.Work(ctx, c.env, workers, c.queue, c.sync)
}

func (c *Controller) sync(ctx context.Context, name string) error {
	ns, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		c.poke(name)
		return nil
	} else if err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil {
		return c.furnish(ctx, ns)
	}
	c.startEmptying(ns)
	return nil
}

// furnish creates what is missing.
func (c *Controller) furnish(ctx context.Context, ns *corev1.Namespace) error {
	if _, err := c.accounts.ServiceAccounts(ns.Name).Get(accountName); err != nil {
		_, err := c.client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: accountName}}, metav1.CreateOptions{})
		if err = harmless(err); err != nil {
			return fmt.Errorf("create service account %s/%s: %w", ns.Name, accountName, err)
		}
		c.env.Point(pointAccount, "")
	}
	want := map[string]string{"ca.crt": c.opts.RootCA}
	have, err := c.configs.ConfigMaps(ns.Name).Get(rootCAName)
	switch {
	case err != nil:
		_, err = c.client.CoreV1().ConfigMaps(ns.Name).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: rootCAName, Annotations: map[string]string{
				"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}},
			Data: want,
		}, metav1.CreateOptions{})
	case have.Data["ca.crt"] != c.opts.RootCA:
		clone := have.DeepCopy()
		clone.Data = want
		_, err = c.client.CoreV1().ConfigMaps(ns.Name).Update(ctx, clone, metav1.UpdateOptions{})
	}
	if err = harmless(err); err != nil {
		return fmt.Errorf("write config map %s/%s: %w", ns.Name, rootCAName, err)
	}
	return nil
}

// harmless drops the errors of a write that somebody else has done, or whose namespace is going.
func harmless(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// startEmptying gives a namespace its goroutine, or wakes it.
func (c *Controller) startEmptying(ns *corev1.Namespace) {
	if c.env.Metadata == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.ending[ns.Name]; ok {
		return
	}
	again := make(chan struct{}, 1)
	c.ending[ns.Name] = again
	c.wg.Go(func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.ending, ns.Name)
		}()
		c.empty(c.emptied, ns.Name, again)
	})
}

// poke tells a namespace's goroutine that the namespace has changed.
func (c *Controller) poke(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if again, ok := c.ending[name]; ok {
		select {
		case again <- struct{}{}:
		default:
		}
	}
}
