package pvbinder

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"
)

// The annotations that make a class the default.
const (
	annDefaultClass     = "storageclass.kubernetes.io/is-default-class"
	annBetaDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// provision asks the external provisioner for a volume by annotations on the claim.
func (c *Controller) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := c.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
	if apierrors.IsNotFound(err) {
		// A class that was made just before its claim may not have come this far yet; it will bring the claim back.
		if _, live := c.client.StorageV1().StorageClasses().Get(ctx, volume.GetPersistentVolumeClaimClass(claim), metav1.GetOptions{}); live == nil {
			return nil
		}
	}
	if err != nil {
		c.events.Event(claim, corev1.EventTypeWarning, reasonProvisioningFailed, err.Error())
		return nil
	}
	if strings.HasPrefix(class.Provisioner, "kubernetes.io/") {
		c.events.Event(claim, corev1.EventTypeWarning, reasonProvisioningFailed, "no volume plugin matched name: "+class.Provisioner)
		return nil
	}
	if claim.Annotations[volume.AnnStorageProvisioner] != class.Provisioner {
		clone := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&clone.ObjectMeta, volume.AnnBetaStorageProvisioner, class.Provisioner)
		metav1.SetMetaDataAnnotation(&clone.ObjectMeta, volume.AnnStorageProvisioner, class.Provisioner)
		stored, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, clone, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("ask provisioner %s for claim %s: %w", class.Provisioner, claimKey(claim), err)
		}
		c.store.wroteClaim(stored)
		claim = stored
	}
	c.events.Event(claim, corev1.EventTypeNormal, reasonExternalProvisioning, fmt.Sprintf(
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner))
	return nil
}

// assignDefaultClass gives a claim without a class the default class that appeared
// after it. An empty class is a class: such a claim is left alone.
func (c *Controller) assignDefaultClass(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if volume.PersistentVolumeClaimHasClass(claim) {
		return false, nil
	}
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return false, err
	}
	class := defaultClass(classes)
	if class == nil {
		return false, nil
	}
	clone := claim.DeepCopy()
	clone.Spec.StorageClassName = &class.Name
	stored, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return false, fmt.Errorf("give claim %s the default class %s: %w", claimKey(claim), class.Name, err)
	}
	if c.store.wroteClaim(stored) {
		c.claimQueue.Add(claimKey(stored))
	}
	return true, nil
}

// defaultClass is the newest of the classes marked as default, the first by name among equals.
func defaultClass(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	var best *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations[annDefaultClass] != "true" && class.Annotations[annBetaDefaultClass] != "true" {
			continue
		}
		switch {
		case best == nil, best.CreationTimestamp.Before(&class.CreationTimestamp):
			best = class
		case class.CreationTimestamp.Equal(&best.CreationTimestamp) && class.Name < best.Name:
			best = class
		}
	}
	return best
}
