package attachdetach

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// report writes one node's volumesAttached: one patch at a time, each with the whole
// list as it is at that moment, so that many changes share a patch. Guarded by Controller.mu.
type report struct {
	running bool
	wanted  uint64 // number of the latest change
	waiting []waiter
}

// waiter wants to know that the changes up to a number are written.
type waiter struct {
	upTo uint64
	done chan error // of one
}

// reportSoon has the node's list written. Called with mu held.
func (c *Controller) reportSoon(n NodeName) *report {
	r := c.reports[n]
	if r == nil {
		r = &report{}
		c.reports[n] = r
	}
	r.wanted++
	if !r.running {
		r.running = true
		c.wg.Go(func() {
			c.write(n, r)
		})
	}
	return r
}

// reportNow is reportSoon with a way to wait for the outcome of the first patch that
// holds the change. Called with mu held; the returned function is called without.
func (c *Controller) reportNow(n NodeName) func(context.Context) error {
	r := c.reportSoon(n)
	w := waiter{upTo: r.wanted, done: make(chan error, 1)}
	r.waiting = append(r.waiting, w)
	return func(ctx context.Context) error {
		select {
		case err := <-w.done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write patches until the node shows the latest list. A failure is told to those
// who wait, who decide for themselves, and tried again for those who do not.
func (c *Controller) write(n NodeName, r *report) {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[NodeName](firstBackoff, lastBackoff)
	ctx := c.ctx
	for {
		c.mu.Lock()
		number, list := r.wanted, c.actual.report(n)
		c.mu.Unlock()
		err := c.patch(ctx, n, list)
		c.mu.Lock()
		rest := r.waiting[:0]
		for _, w := range r.waiting {
			if w.upTo <= number {
				w.done <- err
			} else {
				rest = append(rest, w)
			}
		}
		r.waiting = rest
		if ctx.Err() != nil || err == nil && r.wanted == number {
			r.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if err == nil {
			backoff.Forget(n)
			continue
		}
		c.env.Log.Warn().Err(err).Msg("report attached volumes")
		t := c.env.Clock().NewTimer(backoff.When(n))
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// patch writes the list into node.status.volumesAttached. A node that is gone needs none.
func (c *Controller) patch(ctx context.Context, n NodeName, list []corev1.AttachedVolume) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": list}})
	if err != nil {
		return fmt.Errorf("encode the attached volumes of %s: %w", n, err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, string(n), types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report the attached volumes of %s: %w", n, err)
	}
	return nil
}
