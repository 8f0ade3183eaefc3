// Package journal is a small operator: each ConfigMap with the label app=journal gets a volume of the size that
// its key "size" says. The volume goes with the ConfigMap.
//
// Its tests are the point: they run the operator against drydock, where others run it against envtest, and
// claims are provisioned and bound while they look.
package journal

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const (
	// Finalizer keeps a journal until its volume is gone.
	Finalizer = "example.com/journal"
	// OwnerField is an index of claims by the journal that controls them.
	OwnerField = "journal"
	// VolumeKey is where the operator writes the name of the bound volume.
	VolumeKey = "example.com/volume"
)

// Reconciler gives journals their volumes.
type Reconciler struct {
	client.Client
	// Class is the storage class of the claims.
	Class string
}

// SetupWithManager registers the reconciler and its index. Names are not checked for uniqueness, so that two managers can run in one test.
func (r *Reconciler) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	err := m.GetFieldIndexer().IndexField(ctx, &corev1.PersistentVolumeClaim{}, OwnerField, func(o client.Object) []string {
		if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == "ConfigMap" {
			return []string{ref.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index claims: %w", err)
	}
	journals := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["app"] == "journal" })
	unchecked := true
	return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}, builder.WithPredicates(journals)).Owns(&corev1.PersistentVolumeClaim{}).
		WithOptions(controller.Options{SkipNameValidation: &unchecked}).Complete(r)
}

// Reconcile brings one journal's claim to what the journal says.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var journal corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &journal); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if journal.DeletionTimestamp != nil {
		return ctrl.Result{}, r.finish(ctx, &journal)
	}
	if controllerutil.AddFinalizer(&journal, Finalizer) {
		if err := r.Update(ctx, &journal); err != nil {
			return ctrl.Result{}, err
		}
	}
	size, err := resource.ParseQuantity(journal.Data["size"])
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("size of journal %s: %w", req, err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: journal.Name, Namespace: journal.Namespace}}
	_, err = controllerutil.CreateOrPatch(ctx, r.Client, claim, func() error {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.StorageClassName = &r.Class
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
		return controllerutil.SetControllerReference(&journal, claim, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("claim of journal %s: %w", req, err)
	}
	if claim.Status.Phase != corev1.ClaimBound || journal.Annotations[VolumeKey] == claim.Spec.VolumeName {
		return ctrl.Result{}, nil // the claim's next change comes back here
	}
	before := journal.DeepCopy()
	if journal.Annotations == nil {
		journal.Annotations = map[string]string{}
	}
	journal.Annotations[VolumeKey] = claim.Spec.VolumeName
	return ctrl.Result{}, r.Patch(ctx, &journal, client.MergeFrom(before))
}

// finish lets a journal go once its claims are gone.
func (r *Reconciler) finish(ctx context.Context, journal *corev1.ConfigMap) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, client.InNamespace(journal.Namespace), client.MatchingFields{OwnerField: journal.Name}); err != nil {
		return err
	}
	for i := range claims.Items {
		if err := r.Delete(ctx, &claims.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(claims.Items) > 0 || !controllerutil.RemoveFinalizer(journal, Finalizer) {
		return nil // a claim that goes comes back here
	}
	return client.IgnoreNotFound(r.Update(ctx, journal))
}
