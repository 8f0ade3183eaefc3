package pluginmanager

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetStorageHealth writes to CSINode what is wrong with the storage of a driver. It
// writes nothing if the same is on record in other words.
func (n *NodeInfo) SetStorageHealth(ctx context.Context, driver string, conditions []storagev1.StorageHealthCondition) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.Retry(ctx, func() error {
		c, err := n.csiNode(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(c.Status.StorageHealth, func(h storagev1.StorageHealth) bool { return h.Name == driver })
		var have []storagev1.StorageHealthCondition
		if i >= 0 {
			have = c.Status.StorageHealth[i].HealthConditions
		}
		if same(have, conditions) {
			return nil
		}
		c.Status.StorageHealth = slices.DeleteFunc(c.Status.StorageHealth, func(h storagev1.StorageHealth) bool { return h.Name == driver })
		if len(conditions) > 0 {
			c.Status.StorageHealth = append(c.Status.StorageHealth, storagev1.StorageHealth{Name: driver, HealthConditions: conditions})
		}
		_, err = n.Client.StorageV1().CSINodes().UpdateStatus(ctx, c, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("error updating CSINode status: %w", err)
	}
	return nil
}

// same compares what is wrong, whatever the words for it.
func same(a, b []storagev1.StorageHealthCondition) bool {
	within := func(a, b []storagev1.StorageHealthCondition) bool {
		return !slices.ContainsFunc(a, func(x storagev1.StorageHealthCondition) bool {
			return !slices.ContainsFunc(b, func(y storagev1.StorageHealthCondition) bool {
				return x.Status == y.Status && x.Reason == y.Reason && equal(x.AccessMode, y.AccessMode) && equal(x.VolumeMode, y.VolumeMode)
			})
		})
	}
	return within(a, b) && within(b, a)
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
