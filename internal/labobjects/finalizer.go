package labobjects

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// patcher is a client of one kind.
type patcher[T any] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (T, error)
}

// setFinalizers replaces the finalizers of an object that is still as it was seen.
func setFinalizers[T any](ctx context.Context, to patcher[T], o metav1.Object, list []string) (T, error) {
	if list == nil {
		list = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": list, "resourceVersion": o.GetResourceVersion()}})
	if err != nil {
		var none T
		return none, err
	}
	return to.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
}

func claimed(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), v1alpha1.Finalizer) }

func without(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer })
}

// claim makes sure that a fault does not go before it is healed.
func (c *Controller) claim(ctx context.Context, f *v1alpha1.Fault) (*v1alpha1.Fault, error) {
	if claimed(f) {
		return f, nil
	}
	got, err := setFinalizers(ctx, c.Client.Faults, f, append(without(f), v1alpha1.Finalizer))
	if err != nil {
		return f, err
	}
	return got, nil
}

// release lets a fault go that is healed.
func (c *Controller) release(ctx context.Context, f *v1alpha1.Fault) error {
	if !claimed(f) {
		return nil
	}
	_, err := setFinalizers(ctx, c.Client.Faults, f, without(f))
	return unlessGone(err)
}

func unlessGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
