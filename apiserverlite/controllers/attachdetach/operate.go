package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// attach runs one attach operation, in its own goroutine.
func (c *Controller) attach(ctx context.Context, key opKey, p place, v *corev1.PersistentVolume, pods []*corev1.Pod) {
	c.env.Lab.Timeline.Alias(v.Spec.CSI.VolumeHandle, v.Name)
	spanCtx, span := c.env.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "attach", Volume: v.Name, Node: string(p.Node)})
	err := c.makeAttachment(spanCtx, p, v)
	span.End("", err)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		c.env.Point(pointAttached, v.Name)
		c.sayAttached(v, pods)
	} else {
		c.env.Log.Warn().Err(err).Str("volume", v.Name).Str("node", string(p.Node)).Msg("attach")
		c.sayAttachFailed(v, pods, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.actual.attached(p.Volume, p.Node, v)
		c.reportSoon(p.Node)
	} else {
		// The attacher may have done it all the same.
		c.actual.uncertain(p.Volume, p.Node, v)
	}
	c.pending.end(key, err)
	c.poke()
}

// makeAttachment creates the VolumeAttachment unless there is one, and waits until
// the external attacher has attached the volume or said why not.
func (c *Controller) makeAttachment(ctx context.Context, p place, v *corev1.PersistentVolume) error {
	csi := v.Spec.CSI
	name := control.AttachmentName(csi.VolumeHandle, csi.Driver, string(p.Node))
	changed, done := c.watchAttachment(name)
	defer done()
	if _, err := c.vas.Get(name); apierrors.IsNotFound(err) {
		_, err := c.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: csi.Driver,
				NodeName: string(p.Node),
				Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create attachment of volume %s to %s: %w", v.Name, p.Node, err)
		}
		c.env.Point(pointAttachmentMade, v.Name)
	}
	seen := false
	return c.await(ctx, changed, fmt.Sprintf("timed out waiting for external-attacher of %s CSI driver to attach volume %s", csi.Driver, csi.VolumeHandle), func() (bool, error) {
		va, err := c.vas.Get(name)
		switch {
		case err != nil && seen:
			return false, errors.New("volume attachment has been deleted")
		case err != nil:
			return false, nil // ours has not come by the watch yet
		}
		seen = true
		switch {
		case va.DeletionTimestamp != nil:
			return false, errors.New("volume attachment is being deleted")
		case va.Status.Attached:
			return true, nil
		case va.Status.AttachError != nil:
			return false, errors.New(va.Status.AttachError.Message)
		}
		return false, nil
	})
}

var errInUse = errors.New("the node still uses it")

// detachment is one detach operation.
type detachment struct {
	place
	volume *corev1.PersistentVolume // nil while unknown
	// unverified skips the last look at the node: the volume goes by force.
	unverified bool
	// ask the node first whether it uses the volume: it has not said.
	ask bool
}

// detach runs one detach operation, in its own goroutine.
func (c *Controller) detach(ctx context.Context, key opKey, d detachment) {
	label := string(d.Volume)
	if d.volume != nil {
		label = d.volume.Name
	}
	end := func(outcome func(), err error) {
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			c.env.Log.Warn().Err(err).Str("volume", label).Str("node", string(d.Node)).Msg("detach")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		outcome()
		c.pending.end(key, err)
		c.poke()
	}
	if d.ask {
		inUse, err := c.volumesInUse(ctx, d.Node)
		if err != nil || slices.Contains(inUse, d.Volume) {
			end(func() {
				if err == nil {
					c.actual.told(d.Node, inUse)
				}
			}, err)
			return
		}
	}
	spanCtx, span := c.env.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "detach", Volume: label, Node: string(d.Node)})
	c.mu.Lock()
	var was bool
	if at := c.actual.list[d.place]; at != nil {
		was, at.reported = at.reported, false
	}
	wait := func(context.Context) error { return nil }
	if was {
		wait = c.reportNow(d.Node)
	}
	c.mu.Unlock()
	if err := wait(spanCtx); err != nil {
		span.End("", err)
		end(func() {
			if at := c.actual.list[d.place]; at != nil {
				at.reported = was
			}
		}, err)
		return
	}
	c.env.Point(pointUnreported, label)
	err := c.removeAttachment(spanCtx, d, label)
	span.End("", err)
	end(func() {
		switch {
		case err == nil:
			c.actual.detached(d.place)
		case errors.Is(err, errInUse):
			// Nothing was done: what was known of the node was old. It holds the volume as before, so that no other
			// node gets it. Upstream takes it for uncertain then, and leaves it to the attacher to refuse.
			if at := c.actual.list[d.place]; at != nil {
				at.reported, at.inUse, at.assumed = was, true, false
				if was {
					c.reportSoon(d.Node)
				}
			}
		default:
			// Half done, perhaps. It is reported again only after an attach that succeeds.
			c.actual.uncertain(d.Volume, d.Node, nil)
		}
	}, err)
}

// removeAttachment deletes the VolumeAttachment and waits until the external attacher has let it go.
func (c *Controller) removeAttachment(ctx context.Context, d detachment, label string) error {
	if !d.unverified {
		inUse, err := c.volumesInUse(ctx, d.Node)
		if err != nil {
			return err
		}
		if slices.Contains(inUse, d.Volume) {
			return fmt.Errorf("detach volume %s from %s: %w", label, d.Node, errInUse)
		}
	}
	driver, handle, err := control.SplitUniqueName(d.Volume)
	if err != nil {
		return err
	}
	name := control.AttachmentName(handle, driver, string(d.Node))
	changed, done := c.watchAttachment(name)
	defer done()
	err = c.client.StorageV1().VolumeAttachments().Delete(ctx, name, metav1.DeleteOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete attachment of volume %s to %s: %w", label, d.Node, err)
	}
	c.env.Point(pointDetaching, label)
	return c.await(ctx, changed, fmt.Sprintf("timed out waiting for external-attacher of %s CSI driver to detach volume %s", driver, handle), func() (bool, error) {
		va, err := c.vas.Get(name)
		if apierrors.IsNotFound(err) {
			// Gone, or so new that the watch has not shown it yet.
			_, err := c.client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		}
		if err == nil && va.Status.DetachError != nil {
			return false, errors.New(va.Status.DetachError.Message)
		}
		return false, nil
	})
}

// volumesInUse reads live what a node uses. A node that is gone uses nothing.
func (c *Controller) volumesInUse(ctx context.Context, n NodeName) ([]Volume, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, string(n), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask which volumes %s uses: %w", n, err)
	}
	return node.Status.VolumesInUse, nil
}
