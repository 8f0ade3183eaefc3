package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
)

// The wait after a round with an error, doubling from the first to the last.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 15 * time.Second
)

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// leftover is what remains of one resource after a round.
type leftover struct {
	resource   schema.GroupVersionResource
	count      int
	finalizers map[string]int
	revision   string // to watch from
}

// round is the outcome of one pass over a namespace.
type round struct {
	left      []leftover
	discovery error
	errs      []error // of deletions
}

func (r *round) err() error { return errors.Join(append(slices.Clone(r.errs), r.discovery)...) }

// empty runs rounds until the namespace is finalized or gone.
func (c *Controller) empty(ctx context.Context, name string, again <-chan struct{}) {
	wait := firstWait
	for ctx.Err() == nil {
		ns, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		var r round
		if err == nil {
			if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
				return
			}
			r = c.pass(ctx, name)
			err = errors.Join(r.err(), c.tell(ctx, ns, r))
			if err == nil && len(r.left) == 0 {
				c.env.Point(pointEmpty, "")
				if err = c.finalize(ctx, name); err == nil {
					return
				}
			}
		}
		if err == nil {
			wait = firstWait
			c.await(ctx, name, r.left, again, 0)
			continue
		}
		if ctx.Err() == nil {
			c.env.Log.Debug().Err(err).Str("namespace", name).Msg("namespace is not empty yet")
		}
		c.await(ctx, name, r.left, again, wait)
		wait = min(2*wait, lastWait)
	}
}

// pass deletes everything once and returns what remains.
func (c *Controller) pass(ctx context.Context, name string) round {
	var r round
	resources, err := c.resources()
	if err != nil {
		r.discovery = err
	}
	one := func(gvr schema.GroupVersionResource, verbs metav1.Verbs) {
		left, err := c.deleteAll(ctx, gvr, verbs, name)
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("delete %s of namespace %s: %w", gvr.Resource, name, err))
		}
		if left.count > 0 {
			r.left = append(r.left, left)
		}
	}
	if verbs, ok := resources[podsResource]; ok {
		one(podsResource, verbs)
		if len(r.left) > 0 {
			return r
		}
		c.env.Point(pointPods, "")
	}
	for gvr, verbs := range resources {
		if gvr != podsResource {
			one(gvr, verbs)
		}
	}
	return r
}

// resources returns the namespaced resources that can be deleted and listed. With an
// error of discovery it returns those of the groups that answered.
func (c *Controller) resources() (map[schema.GroupVersionResource]metav1.Verbs, error) {
	lists, err := c.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	m := map[schema.GroupVersionResource]metav1.Verbs{}
	for _, l := range lists {
		gv, perr := schema.ParseGroupVersion(l.GroupVersion)
		if perr != nil {
			err = errors.Join(err, perr)
			continue
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") {
				m[gv.WithResource(r.Name)] = r.Verbs
			}
		}
	}
	return m, err
}

// deleteAll deletes the objects of one resource and counts those that stay.
func (c *Controller) deleteAll(ctx context.Context, gvr schema.GroupVersionResource, verbs metav1.Verbs, ns string) (leftover, error) {
	client := c.env.Metadata.Resource(gvr).Namespace(ns)
	opts := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	var errs []error
	if slices.Contains([]string(verbs), "deletecollection") {
		if err := client.DeleteCollection(ctx, opts, metav1.ListOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	} else {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return leftover{}, err
		}
		for _, o := range list.Items {
			if err := client.Delete(ctx, o.Name, opts); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return leftover{}, nil // the resource itself has gone
	} else if err != nil {
		return leftover{}, errors.Join(append(errs, err)...)
	}
	left := leftover{resource: gvr, count: len(list.Items), finalizers: map[string]int{}, revision: list.ResourceVersion}
	for _, o := range list.Items {
		for _, f := range o.Finalizers {
			left.finalizers[f]++
		}
	}
	return left, errors.Join(errs...)
}

// await blocks until something that remains has changed, the namespace has, or the
// wait is over, where there is one.
func (c *Controller) await(ctx context.Context, name string, left []leftover, again <-chan struct{}, wait time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var ended []<-chan struct{}
	defer func() {
		cancel()
		for _, e := range ended {
			<-e
		}
	}()
	for _, l := range left {
		w, err := c.env.Metadata.Resource(l.resource).Namespace(name).Watch(ctx, metav1.ListOptions{ResourceVersion: l.revision})
		if err != nil {
			if wait == 0 {
				wait = firstWait
			}
			continue
		}
		end := make(chan struct{})
		ended = append(ended, end)
		go func() {
			defer close(end)
			defer w.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-w.ResultChan():
					if ok && (e.Type == watch.Bookmark || e.Type == watch.Modified) {
						continue
					}
					select {
					case changed <- struct{}{}:
					default:
					}
					return
				}
			}
		}()
	}
	var due <-chan time.Time
	if wait > 0 {
		t := c.env.Clock().NewTimer(wait)
		defer t.Stop()
		due = t.C()
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-again:
	case <-due:
	}
}

// finalize takes our finalizer off the namespace.
func (c *Controller) finalize(ctx context.Context, name string) error {
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if _, err := c.client.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}
