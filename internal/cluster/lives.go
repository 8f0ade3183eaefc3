package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/stages"
)

// WatchLives streams the life of every claim each time it changes, until ctx ends.
// The channel closes then. A reader that is slow slows the stream, nothing else.
func (c *Cluster) WatchLives(ctx context.Context) (<-chan stages.Life, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig("progress"))
	if err != nil {
		return nil, fmt.Errorf("watch the volumes: %w", err)
	}
	type change struct {
		obj  runtime.Object
		gone bool
	}
	changes := make(chan change, 256)
	send := func(obj any, gone bool) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		if o, ok := obj.(runtime.Object); ok {
			select {
			case changes <- change{o, gone}:
			case <-ctx.Done():
			}
		}
	}
	f := informers.NewSharedInformerFactory(client, 0)
	for _, inf := range []cache.SharedIndexInformer{
		f.Core().V1().PersistentVolumeClaims().Informer(), f.Core().V1().PersistentVolumes().Informer(), f.Core().V1().Pods().Informer(),
		f.Core().V1().Events().Informer(), f.Storage().V1().VolumeAttachments().Informer(), f.Storage().V1().StorageClasses().Informer(),
		f.Storage().V1().CSINodes().Informer(), // they translate the driver's node ids
	} {
		inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { send(o, false) },
			UpdateFunc: func(_, o any) { send(o, false) },
			DeleteFunc: func(o any) { send(o, true) },
		})
	}
	recorded, sub := c.Lab.Timeline.Subscribe(4096)
	f.Start(ctx.Done())
	out := make(chan stages.Life)
	go func() {
		defer close(out)
		defer f.Shutdown()
		defer func() { sub.Close() }()
		tr := stages.NewTracker(c.Lab.Clock)
		for _, s := range recorded {
			tr.Span(s)
		}
		for {
			var touched []stages.Ref
			select {
			case <-ctx.Done():
				return
			case x := <-changes:
				if x.gone {
					touched = tr.Deleted(x.obj)
				} else {
					touched = tr.Object(x.obj)
				}
			case s, ok := <-sub.C:
				if !ok { // too slow: join again; the tracker takes what it knows already
					recorded, sub = c.Lab.Timeline.Subscribe(4096)
					for _, s := range recorded {
						touched = append(touched, tr.Span(s)...)
					}
					break
				}
				touched = tr.Span(s)
			}
			for _, ref := range touched {
				life, ok := tr.Claim(ref.Namespace, ref.Name)
				if !ok {
					continue
				}
				select {
				case out <- life:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	for _, ok := range f.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("watch the volumes: %w", context.Cause(ctx))
		}
	}
	return out, nil
}

// Published is where a pod's first claim is published, as somebody outside of this
// process reaches it: with real devices through the process's mount namespace.
func (c *Cluster) Published(ctx context.Context, namespace, pod string) (string, error) {
	p, err := c.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the volume of pod %s/%s: %w", namespace, pod, err)
	}
	pattern := filepath.Join(c.Layout.Kubelet(p.Spec.NodeName), "pods", string(p.UID), "volumes", "kubernetes.io~csi", "*", "mount")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("find the volume of pod %s/%s: nothing is published at %s", namespace, pod, pattern)
	}
	if c.Mode == host.Loop {
		return filepath.Join("/proc", strconv.Itoa(os.Getpid()), "root", found[0]), nil
	}
	return found[0], nil
}
