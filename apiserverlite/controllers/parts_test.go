package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	"drydock.dev/drydock/internal/lab"
)

type watchFunc func(context.Context, metav1.ListOptions) (watch.Interface, error)

// lister hides the type of a list.
func lister[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// each calls f with every object there is and every change, until f says stop or ctx ends.
func each(ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), watchF watchFunc, f func(o runtime.Object, gone bool) (stop bool)) {
	for ctx.Err() == nil {
		// The watch first: the fake API cannot replay what happened between.
		l, err := list(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		m, _ := meta.ListAccessor(l)
		wt, err := watchF(ctx, metav1.ListOptions{ResourceVersion: m.GetResourceVersion()})
		if err != nil {
			continue
		}
		if m.GetResourceVersion() == "" {
			if l, err = list(ctx, metav1.ListOptions{}); err != nil {
				wt.Stop()
				continue
			}
		}
		stop := false
		_ = meta.EachListItem(l, func(o runtime.Object) error {
			if f(o.DeepCopyObject(), false) {
				stop = true
				return errors.New("stop")
			}
			return nil
		})
		for !stop {
			select {
			case <-ctx.Done():
				stop = true
			case e, ok := <-wt.ResultChan():
				if !ok {
					goto again
				}
				if e.Type == watch.Error || e.Type == watch.Bookmark {
					continue
				}
				stop = f(e.Object.DeepCopyObject(), e.Type == watch.Deleted)
			}
		}
		wt.Stop()
		return
	again:
		wt.Stop()
	}
}

// provisioner plays the external provisioner: a volume for each claim that asks for one.
func (w *world) provisioner(ctx context.Context) {
	claims := w.client.CoreV1().PersistentVolumeClaims("")
	each(ctx, lister(claims.List), claims.Watch, func(o runtime.Object, gone bool) bool {
		c := o.(*corev1.PersistentVolumeClaim)
		if gone || c.Spec.VolumeName != "" || c.Annotations["volume.kubernetes.io/storage-provisioner"] != driver {
			return false
		}
		class, err := w.client.StorageV1().StorageClasses().Get(ctx, *c.Spec.StorageClassName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		if *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && c.Annotations["volume.kubernetes.io/selected-node"] == "" {
			return false
		}
		_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: *c.Spec.StorageClassName,
				PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
				ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: driver, VolumeHandle: "vol-" + string(c.UID)}},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			w.t.Errorf("provision: %v", err)
		}
		return false
	})
}

const attacherFinalizer = "external-attacher/csi-drydock-dev"

// attacher plays the external attacher: it attaches what there is and lets go what is deleted.
func (w *world) attacher(ctx context.Context) {
	vas := w.client.StorageV1().VolumeAttachments()
	each(ctx, lister(vas.List), vas.Watch, func(o runtime.Object, gone bool) bool {
		va := o.(*storagev1.VolumeAttachment)
		if gone {
			return false
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			va, err := vas.Get(ctx, va.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			switch {
			case va.DeletionTimestamp != nil:
				va.Finalizers = nil
				_, err = vas.Update(ctx, va, metav1.UpdateOptions{})
			case len(va.Finalizers) == 0:
				va.Finalizers = []string{attacherFinalizer}
				_, err = vas.Update(ctx, va, metav1.UpdateOptions{})
			case !va.Status.Attached:
				va.Status.Attached = true
				_, err = vas.UpdateStatus(ctx, va, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.t.Errorf("attacher: %v", err)
		}
		return false
	})
}

// setInUse plays the kubelet's report of what a node uses.
func (w *world) setInUse(node string, volumes ...corev1.UniqueVolumeName) {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": volumes}})
	w.check(err)
	_, err = w.client.CoreV1().Nodes().Patch(w.ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	w.check(err)
}

// dump logs what there is, for a test that waited in vain.
func (w *world) dump() {
	ctx := context.Background()
	pods, _ := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	for _, p := range pods.Items {
		w.t.Logf("pod %s/%s rv=%s on %q %s deleted=%v %v", p.Namespace, p.Name, p.ResourceVersion, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Status.Conditions)
	}
	claims, _ := w.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	for _, c := range claims.Items {
		w.t.Logf("claim %s/%s rv=%s %s volume=%s deleted=%v %v %v", c.Namespace, c.Name, c.ResourceVersion, c.Status.Phase, c.Spec.VolumeName, c.DeletionTimestamp, c.Annotations, c.Finalizers)
	}
	volumes, _ := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	for _, v := range volumes.Items {
		w.t.Logf("volume %s rv=%s %s claim=%v %v", v.Name, v.ResourceVersion, v.Status.Phase, v.Spec.ClaimRef, v.Annotations)
	}
	vas, _ := w.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	for _, va := range vas.Items {
		w.t.Logf("attachment %s rv=%s to %s deleted=%v %v %+v", va.Name, va.ResourceVersion, va.Spec.NodeName, va.DeletionTimestamp, va.Finalizers, va.Status)
	}
	nodes, _ := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	for _, n := range nodes.Items {
		w.t.Logf("node %s rv=%s taints=%v attached=%v inUse=%v", n.Name, n.ResourceVersion, n.Spec.Taints, n.Status.VolumesAttached, n.Status.VolumesInUse)
	}
	events, _ := w.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	for _, e := range events.Items {
		w.t.Logf("event %s %s %s", e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

// none waits until left names nothing, asking at the start and after each event of the watch.
func (w *world) none(what string, watchF watchFunc, left func() (string, error)) {
	w.t.Helper()
	wt, err := watchF(w.ctx, metav1.ListOptions{})
	w.check(err)
	defer wt.Stop()
	for {
		name, err := left()
		w.check(err)
		if name == "" {
			return
		}
		select {
		case <-wt.ResultChan():
		case <-w.ctx.Done():
			w.dump()
			w.t.Fatalf("waited in vain until %s goes: there is %s", what, name)
		}
	}
}

func (w *world) noAttachments() {
	w.t.Helper()
	vas := w.client.StorageV1().VolumeAttachments()
	w.none("the attachment", vas.Watch, func() (string, error) {
		l, err := vas.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
}

func (w *world) noClaims(namespace string) {
	w.t.Helper()
	claims := w.client.CoreV1().PersistentVolumeClaims(namespace)
	w.none("the claim", claims.Watch, func() (string, error) {
		l, err := claims.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
}

// timeFlies makes every real 20 ms count as step until the returned function is called.
func (w *world) timeFlies(step time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, func(ctx context.Context) {
		t := time.NewTicker(20 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				w.clock().Advance(step)
			}
		}
	})
	return func() { cancel(); wait() }
}

func (w *world) clock() *lab.Clock { return w.lab.Clock.(*lab.Clock) }
