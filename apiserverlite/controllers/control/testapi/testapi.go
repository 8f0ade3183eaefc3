// Package testapi is a small working Kubernetes API for tests of controllers: client-go's
// fake clientset with the rules that controllers rely on. Unlike the fake alone it has
// one resourceVersion for all kinds, refuses a write under an old one, keeps status
// apart from the rest, honours finalizers, preconditions and grace 0, fills in UIDs and
// first phases, sets protection finalizers, and knows the binding of pods.
//
// It is for tests that want thousands of runs; whole paths are tested on the real server.
package testapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// API is one API. Its embedded clientset is its client; a test may prepend reactors.
type API struct {
	*fake.Clientset
	clock   clock.PassiveClock
	tracker clienttesting.ObjectTracker

	mu       sync.Mutex
	revision int64      // guarded by mu
	watches  int        // guarded by mu: begun so far
	watched  *sync.Cond // on mu
}

// New returns an empty API.
func New(c clock.PassiveClock) *API {
	a := &API{
		Clientset: &fake.Clientset{},
		clock:     c,
		tracker:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
	}
	a.watched = sync.NewCond(&a.mu)
	a.AddReactor("create", "*", a.create)
	a.AddReactor("update", "*", a.update)
	a.AddReactor("patch", "*", a.patch)
	a.AddReactor("delete", "*", a.delete)
	a.AddReactor("*", "*", clienttesting.ObjectReaction(a.tracker))
	a.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var opts metav1.ListOptions
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			opts = w.ListOptions
		}
		w, err := a.tracker.Watch(action.GetResource(), action.GetNamespace(), opts)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches++
		a.watched.Broadcast()
		return err == nil, w, err
	})
	return a
}

// IsWatchListSemanticsUnSupported tells reflectors to list and then watch.
func (a *API) IsWatchListSemanticsUnSupported() bool { return true }

// Watches counts the watches begun so far.
func (a *API) Watches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watches
}

// WaitWatches blocks until n watches have begun. The fake forgets what is deleted between
// an informer's list and its watch: start nothing before.
func (a *API) WaitWatches(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.watches < n {
		a.watched.Wait()
	}
}

func (a *API) next() string {
	a.revision++
	return strconv.FormatInt(a.revision, 10)
}

func (a *API) create(action clienttesting.Action) (bool, runtime.Object, error) {
	c := action.(clienttesting.CreateActionImpl)
	a.mu.Lock()
	defer a.mu.Unlock()
	if b, ok := c.Object.(*corev1.Binding); ok {
		return true, b, a.bind(c, b)
	}
	obj := c.Object.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return false, nil, nil
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(fmt.Sprintf("%s%d", m.GetGenerateName(), a.revision+1))
	}
	if m.GetNamespace() == "" {
		m.SetNamespace(c.GetNamespace())
	}
	m.SetResourceVersion(a.next())
	m.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", a.revision)))
	m.SetCreationTimestamp(metav1.NewTime(a.clock.Now()))
	admit(obj)
	if err := a.tracker.Create(c.GetResource(), obj, c.GetNamespace()); err != nil {
		return true, nil, err
	}
	return true, obj, nil
}

// admit fills in what defaulting and admission would.
func admit(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimPending
		o.Finalizers = append(o.Finalizers, "kubernetes.io/pvc-protection")
	case *corev1.PersistentVolume:
		o.Status.Phase = corev1.VolumePending
		o.Finalizers = append(o.Finalizers, "kubernetes.io/pv-protection")
	case *corev1.Pod:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
	case *storagev1.VolumeAttachment:
		o.Status = storagev1.VolumeAttachmentStatus{}
	}
}

func (a *API) bind(c clienttesting.CreateActionImpl, b *corev1.Binding) error {
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := a.tracker.Get(gvr, c.GetNamespace(), b.Name)
	if err != nil {
		return err
	}
	pod := o.(*corev1.Pod)
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || b.UID != "" && b.UID != pod.UID {
		return apierrors.NewConflict(gvr.GroupResource(), b.Name, fmt.Errorf("pod %s is already assigned to node %q", b.Name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName = b.Target.Name
	pod.ResourceVersion = a.next()
	return a.tracker.Update(gvr, pod, c.GetNamespace())
}

func (a *API) update(action clienttesting.Action) (bool, runtime.Object, error) {
	u := action.(clienttesting.UpdateActionImpl)
	a.mu.Lock()
	defer a.mu.Unlock()
	obj, err := a.write(u.GetResource(), u.GetNamespace(), u.GetSubresource(), u.Object)
	return true, obj, err
}

// write stores a new state of an object. Called with mu held.
func (a *API) write(gvr schema.GroupVersionResource, ns, sub string, obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	old, err := a.tracker.Get(gvr, ns, m.GetName())
	if err != nil {
		return nil, err
	}
	was, _ := meta.Accessor(old)
	if m.GetUID() != "" && m.GetUID() != was.GetUID() || m.GetResourceVersion() != "" && m.GetResourceVersion() != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), m.GetName(), fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if obj, err = split(obj, old, sub); err != nil {
		return nil, err
	}
	m, _ = meta.Accessor(obj)
	m.SetUID(was.GetUID())
	m.SetCreationTimestamp(was.GetCreationTimestamp())
	m.SetDeletionTimestamp(was.GetDeletionTimestamp())
	m.SetResourceVersion(a.next())
	if m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 {
		return obj, a.tracker.Delete(gvr, ns, m.GetName())
	}
	return obj, a.tracker.Update(gvr, obj, ns)
}

// split takes of obj what the endpoint may write, and the rest of old.
func split(obj, old runtime.Object, sub string) (runtime.Object, error) {
	n, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	if _, has := o["status"]; !has {
		if _, has := n["status"]; !has && sub == "" {
			return obj, nil
		}
	}
	if sub == "status" {
		o["status"] = n["status"]
		n = o
	} else {
		n["status"] = o["status"]
	}
	out, err := scheme.Scheme.New(kindOf(obj))
	if err != nil {
		return nil, err
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(n, out)
}

func kindOf(obj runtime.Object) schema.GroupVersionKind {
	kinds, _, _ := scheme.Scheme.ObjectKinds(obj)
	return kinds[0]
}

func (a *API) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	p := action.(clienttesting.PatchActionImpl)
	a.mu.Lock()
	defer a.mu.Unlock()
	old, err := a.tracker.Get(p.GetResource(), p.GetNamespace(), p.GetName())
	if err != nil {
		return true, nil, err
	}
	have, err := json.Marshal(old)
	if err != nil {
		return true, nil, err
	}
	var now []byte
	switch p.GetPatchType() {
	case types.MergePatchType:
		now, err = jsonpatch.MergePatch(have, p.GetPatch())
	case types.StrategicMergePatchType:
		now, err = strategicpatch.StrategicMergePatch(have, p.GetPatch(), old)
	default:
		err = fmt.Errorf("patch type %s is not served", p.GetPatchType())
	}
	if err != nil {
		return true, nil, err
	}
	obj, err := scheme.Scheme.New(kindOf(old))
	if err != nil {
		return true, nil, err
	}
	if err := json.Unmarshal(now, obj); err != nil {
		return true, nil, err
	}
	out, err := a.write(p.GetResource(), p.GetNamespace(), p.GetSubresource(), obj)
	return true, out, err
}

func (a *API) delete(action clienttesting.Action) (bool, runtime.Object, error) {
	d := action.(clienttesting.DeleteActionImpl)
	a.mu.Lock()
	defer a.mu.Unlock()
	obj, err := a.tracker.Get(d.GetResource(), d.GetNamespace(), d.GetName())
	if err != nil {
		return true, nil, err
	}
	m, _ := meta.Accessor(obj)
	if p := d.DeleteOptions.Preconditions; p != nil && (p.UID != nil && *p.UID != m.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion()) {
		return true, nil, apierrors.NewConflict(d.GetResource().GroupResource(), d.GetName(), fmt.Errorf("precondition failed"))
	}
	grace := int64(0)
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" && !slices.Contains([]corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}, pod.Status.Phase) {
		grace = 30
		if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = *s
		}
		if s := d.DeleteOptions.GracePeriodSeconds; s != nil {
			grace = *s
		}
	}
	if len(m.GetFinalizers()) == 0 && grace == 0 {
		return true, obj, a.tracker.Delete(d.GetResource(), d.GetNamespace(), d.GetName())
	}
	if m.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(a.clock.Now())
		m.SetDeletionTimestamp(&now)
		m.SetDeletionGracePeriodSeconds(&grace)
		m.SetResourceVersion(a.next())
		return true, obj, a.tracker.Update(d.GetResource(), obj, d.GetNamespace())
	}
	return true, obj, nil
}
