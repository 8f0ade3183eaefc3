package server

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deleteCollection deletes each object that the selectors find, as a delete of its own, and
// answers with their list. Objects that went by themselves meanwhile are left out.
func (x *exchange) deleteCollection(ctx context.Context) (reply, error) {
	lo, err := x.listOptions()
	if err != nil {
		return reply{}, err
	}
	if x.out.as == "Table" { // before anything is deleted
		if _, err := x.tableOptions(); err != nil {
			return reply{}, err
		}
	}
	o, err := x.collectionOptions()
	if err != nil {
		return reply{}, err
	}
	found, err := x.page(ctx, lo)
	if err != nil {
		return reply{}, err
	}
	out := page{meta: found.meta}
	for _, e := range found.entries {
		m, err := meta.Accessor(e.Object)
		if err != nil {
			return reply{}, err
		}
		w := x.writing(writeOptions{dryRun: len(o.DryRun) > 0})
		w.namespace, w.name = e.Key.Namespace, e.Key.Name
		one := o.DeepCopy()
		if one.Preconditions == nil {
			one.Preconditions = &metav1.Preconditions{}
		}
		if one.Preconditions.UID == nil {
			uid := m.GetUID()
			one.Preconditions.UID = &uid
		}
		if _, err := w.delete(ctx, one); err != nil && !apierrors.IsNotFound(err) {
			return reply{}, err
		}
		out.entries = append(out.entries, e)
	}
	parts, err := x.renderList(ctx, out)
	if err != nil {
		return reply{}, err
	}
	return reply{stream: func(w http.ResponseWriter) { x.s.send(w, x.r, http.StatusOK, x.out.media.contentType(), parts...) }}, nil
}

// collectionOptions are only in the body: the query holds the list's.
func (x *exchange) collectionOptions() (*metav1.DeleteOptions, error) {
	if x.r.ContentLength == 0 {
		o := &metav1.DeleteOptions{}
		return o, x.parameters(o)
	}
	return x.deleteOptions()
}
