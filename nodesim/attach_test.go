package nodesim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runAttachController does what the attach/detach controller and the attacher do: it
// attaches what pods on the node want, and detaches what they do not want any more
// once the node does not use it.
func (w *world) runAttachController() (stop func()) { return w.atEachChange(w.attachAndDetach) }

// atEachChange does a pass whenever a pod or a Node has changed, until it is stopped.
func (w *world) atEachChange(pass func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	wake := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for _, kind := range []string{"pods", "nodes"} {
		i, err := w.watchOf(kind)
		if err != nil {
			w.t.Fatal(err)
		}
		wg.Go(func() {
			defer i.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-i.ResultChan():
					select {
					case wake <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				pass(ctx)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *world) attachAndDetach(ctx context.Context) {
	node, err := w.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return
	}
	want := map[string]string{} // handle -> PV
	pods, _ := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.State.Running != nil }) {
			continue
		}
		for i := range p.Spec.Volumes {
			claim := claimName(&p, &p.Spec.Volumes[i])
			if claim == "" {
				continue
			}
			pv, err := w.client.CoreV1().PersistentVolumes().Get(ctx, "pv-"+claim, metav1.GetOptions{})
			if err == nil && pv.Spec.CSI != nil && !w.skipsAttach(ctx, pv.Spec.CSI.Driver) {
				want[pv.Spec.CSI.VolumeHandle] = pv.Name
			}
		}
	}
	var list, unwanted []v1.AttachedVolume
	changed := false
	for _, a := range node.Status.VolumesAttached {
		if handle := handleOf(a); want[handle] != "" || slices.Contains(node.Status.VolumesInUse, a.Name) {
			delete(want, handle)
			list = append(list, a)
		} else {
			unwanted = append(unwanted, a)
		}
	}
	if len(unwanted) > 0 {
		// First the kubelet may not count on them any more, then it is asked again: who says that a volume is in use and
		// finds it attached after that has said so by now.
		w.sayAttached(ctx, list)
		if node, err = w.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}); err != nil {
			return
		}
	}
	for _, a := range unwanted {
		if slices.Contains(node.Status.VolumesInUse, a.Name) {
			changed = true
			list = append(list, a)
			continue
		}
		w.guest.note("Detach", handleOf(a))
		w.client.StorageV1().VolumeAttachments().Delete(ctx, attachmentName(handleOf(a)), metav1.DeleteOptions{})
	}
	for handle, pv := range want {
		if w.full.Load() {
			w.refuseAttachment(ctx, handle, pv)
			continue
		}
		changed = true
		w.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: attachmentName(handle)},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: nodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
			Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": handle}},
		}, metav1.CreateOptions{})
		list = append(list, v1.AttachedVolume{Name: uniqueName(handle)})
	}
	if changed {
		w.sayAttached(ctx, list)
	}
}

func handleOf(a v1.AttachedVolume) string {
	return strings.TrimPrefix(string(a.Name), "kubernetes.io/csi/"+driverName+"^")
}

func (w *world) sayAttached(ctx context.Context, list []v1.AttachedVolume) {
	if list == nil {
		list = []v1.AttachedVolume{}
	}
	b, _ := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": list}})
	w.client.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, b, metav1.PatchOptions{}, "status")
}

// refuseAttachment leaves an attachment as the attacher does that was told that no more volumes fit.
func (w *world) refuseAttachment(ctx context.Context, handle, pv string) {
	w.client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(handle)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: nodeName, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status:     storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: new(int32(codes.ResourceExhausted))}},
	}, metav1.CreateOptions{})
}

func (w *world) skipsAttach(ctx context.Context, driver string) bool {
	d, err := w.client.StorageV1().CSIDrivers().Get(ctx, driver, metav1.GetOptions{})
	return err == nil && d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired
}
