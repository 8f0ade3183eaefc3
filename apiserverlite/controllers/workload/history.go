package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
)

// History keeps the templates that an owner has had as ControllerRevisions.
type History struct {
	Client kubernetes.Interface
	Lister appslisters.ControllerRevisionLister
}

// Hash names a template, as the last part of names and as a label value.
func Hash(data []byte, collisions *int32) string {
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil {
		h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// data is a patch that takes the owner back to a template.
func data(t *corev1.PodTemplateSpec) ([]byte, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		return nil, err
	}
	u["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": u}})
}

// Template reads back what a revision holds.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var out struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &out); err != nil {
		return nil, fmt.Errorf("read revision %s: %w", r.Name, err)
	}
	return &out.Spec.Template, nil
}

// Sync returns the owner's revisions from the oldest to the newest; the last one is of the template. It is
// made if it is not there, and moved to the end if an older one is the same.
func (h History) Sync(ctx context.Context, o Owner, t *corev1.PodTemplateSpec, labels map[string]string, collisions *int32) ([]*appsv1.ControllerRevision, error) {
	all, err := h.Lister.ControllerRevisions(o.Object.GetNamespace()).List(o.Selector)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(all), func(r *appsv1.ControllerRevision) bool { return !o.Owns(r) })
	slices.SortFunc(own, func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	d, err := data(t)
	if err != nil {
		return nil, err
	}
	next := int64(1)
	if n := len(own); n > 0 {
		next = own[n-1].Revision + 1
	}
	for i, r := range own {
		if !bytes.Equal(r.Data.Raw, d) {
			continue
		}
		if i == len(own)-1 {
			return own, nil
		}
		r = r.DeepCopy()
		r.Revision = next
		if r, err = h.Client.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, r, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("renew revision: %w", err)
		}
		return append(slices.Delete(own, i, i+1), r), nil
	}
	r, err := h.create(ctx, o, d, labels, next, collisions)
	if err != nil {
		return nil, err
	}
	return append(own, r), nil
}

func (h History) create(ctx context.Context, o Owner, d []byte, labels map[string]string, revision int64, collisions *int32) (*appsv1.ControllerRevision, error) {
	hash := Hash(d, collisions)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Object.GetNamespace(), Name: o.Object.GetName() + "-" + hash, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash},
			OwnerReferences: []metav1.OwnerReference{o.Ref()}},
		Data: runtime.RawExtension{Raw: d}, Revision: revision,
	}
	for k, v := range labels {
		r.Labels[k] = v
	}
	made, err := h.Client.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("create revision %s: %w", r.Name, err)
		}
		return made, nil
	}
	have, gerr := h.Client.AppsV1().ControllerRevisions(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if gerr != nil {
		return nil, gerr
	}
	if o.Owns(have) && bytes.Equal(have.Data.Raw, d) {
		return have, nil // ours, which the cache does not show yet
	}
	if collisions != nil {
		*collisions++
	}
	return nil, err
}

// Truncate deletes the oldest revisions that nobody lives by, down to a limit.
func (h History) Truncate(ctx context.Context, all []*appsv1.ControllerRevision, limit int, live map[string]bool) error {
	var old []*appsv1.ControllerRevision
	for _, r := range all {
		if !live[r.Name] {
			old = append(old, r)
		}
	}
	for i := 0; i < len(old)-limit; i++ {
		if err := h.Client.AppsV1().ControllerRevisions(old[i].Namespace).Delete(ctx, old[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision %s: %w", old[i].Name, err)
		}
	}
	return nil
}
