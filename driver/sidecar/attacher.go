package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"github.com/kubernetes-csi/external-attacher/v4/pkg/attacher"
	"github.com/kubernetes-csi/external-attacher/v4/pkg/controller"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

const (
	attachTimeout  = 15 * time.Second
	attachWorkers  = 10
	attachResync   = 10 * time.Minute
	reconcilePause = time.Minute // between comparisons with the driver's list of volumes
	retryStart     = time.Second
	retryMax       = 5 * time.Minute
	shortCall      = 10 * time.Second // calls that only ask the driver what it is
)

// attachOnce is external-attacher's command without its flags.
func attachOnce(ctx context.Context, cfg *Config) error {
	conn, disconnect, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	timeout := orDefault(cfg.Timeout, attachTimeout)
	if err := rpc.ProbeForever(ctx, conn, timeout); err != nil {
		return err
	}
	name, err := driverName(ctx, conn, cfg)
	if err != nil {
		return err
	}
	caps, err := attachCapabilities(ctx, conn)
	if err != nil {
		return fmt.Errorf("ask driver %s what it can attach: %w", name, err)
	}
	rc := cfg.RESTConfig
	rc.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}

	factory := informers.NewSharedInformerFactory(client, attachResync)
	handler := controller.NewTrivialHandler(client)
	if caps.publish {
		handler = controller.NewCSIHandler(client, name, attacher.NewAttacher(conn), attacher.NewVolumeLister(conn, 0),
			factory.Core().V1().PersistentVolumes().Lister(), factory.Storage().V1().CSINodes().Lister(),
			factory.Storage().V1().VolumeAttachments().Lister(), &timeout,
			caps.readOnly, caps.singleNodeMultiWriter, csitrans.New(), cfg.DefaultFSType)
	}
	first, last := orDefault(cfg.RetryStart, retryStart), orDefault(cfg.RetryMax, retryMax)
	ctrl := controller.NewCSIAttachController(klog.FromContext(ctx), client, name, handler,
		factory.Storage().V1().VolumeAttachments(), factory.Core().V1().PersistentVolumes(),
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, last),
		caps.publishedNodes, reconcilePause)

	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	// Waiting here, by event, spares the controller its own waiting in steps of 100 ms.
	factory.WaitForCacheSyncWithContext(ctx)
	if cfg.Started != nil && ctx.Err() == nil {
		cfg.Started()
	}
	var workers sync.WaitGroup
	ctrl.Run(ctx, orDefault(cfg.Workers, attachWorkers), &workers)
	workers.Wait()
	return nil
}

type attachCaps struct{ publish, readOnly, publishedNodes, singleNodeMultiWriter bool }

func attachCapabilities(ctx context.Context, conn *grpc.ClientConn) (attachCaps, error) {
	ctx, cancel := context.WithTimeout(ctx, shortCall)
	defer cancel()
	plugin, err := rpc.GetPluginCapabilities(ctx, conn)
	if err != nil || !plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE] {
		return attachCaps{}, err
	}
	c, err := rpc.GetControllerCapabilities(ctx, conn)
	return attachCaps{
		publish:               c[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME],
		readOnly:              c[csi.ControllerServiceCapability_RPC_PUBLISH_READONLY],
		publishedNodes:        c[csi.ControllerServiceCapability_RPC_LIST_VOLUMES] && c[csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES],
		singleNodeMultiWriter: c[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
	}, err
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
