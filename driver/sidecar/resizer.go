package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/controller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifier"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/modifycontroller"
	"github.com/kubernetes-csi/external-resizer/v2/pkg/resizer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

const (
	resizeTimeout = 10 * time.Second
	resizeWorkers = 10
	resizeResync  = 10 * time.Minute
)

// runner is one of the resizer's two controllers.
type runner interface {
	Run(workers int, ctx context.Context, wg *sync.WaitGroup)
}

// resizeOnce is external-resizer's command without its flags.
func resizeOnce(ctx context.Context, cfg *Config) error {
	conn, disconnect, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer disconnect()
	timeout := orDefault(cfg.Timeout, resizeTimeout)
	if err := rpc.ProbeForever(ctx, conn, timeout); err != nil {
		return err
	}
	name, err := driverName(ctx, conn, cfg)
	if err != nil {
		return err
	}
	rc := cfg.RESTConfig
	rc.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, resizeResync)
	controllers, err := resizeControllers(cfg, name, &resizeClient{conn: conn}, client, factory, timeout)
	if err != nil {
		return err
	}

	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	// Waiting here, by event, spares the controllers their own waiting in steps of 100 ms.
	factory.WaitForCacheSyncWithContext(ctx)
	if cfg.Started != nil && ctx.Err() == nil {
		cfg.Started()
	}
	var running sync.WaitGroup
	for _, c := range controllers {
		running.Go(func() {
			var workers sync.WaitGroup
			c.Run(orDefault(cfg.Workers, resizeWorkers), ctx, &workers)
			workers.Wait()
		})
	}
	running.Wait()
	return nil
}

// resizeControllers are the controllers for what the driver can do: enlarge volumes, change their attributes.
func resizeControllers(cfg *Config, name string, driver *resizeClient, client kubernetes.Interface, factory informers.SharedInformerFactory, timeout time.Duration) ([]runner, error) {
	var out []runner
	longest := orDefault(cfg.RetryMax, retryMax)
	r, err := resizer.NewResizerFromClient(driver, timeout, client, name)
	switch {
	case err == nil:
		const waitForUnused = true // a driver that cannot enlarge a volume in use is asked again when no pod has it
		out = append(out, controller.NewResizeController(name, r, client, resizeResync, factory, limiter[string](cfg), waitForUnused, longest))
	case !errors.Is(err, resizer.ResizeNotSupportErr):
		return nil, fmt.Errorf("ask driver %s whether it can enlarge volumes: %w", name, err)
	}
	const tellClaim = true // extra-modify-metadata: the driver is told claim and volume
	m, err := modifier.NewModifierFromClient(driver, timeout, client, factory, tellClaim, name)
	switch {
	case err == nil:
		out = append(out, modifycontroller.NewModifyController(name, m, client, resizeResync, longest, tellClaim, factory, limiter[string](cfg)))
	case !errors.Is(err, modifier.ModifyNotSupportErr):
		return nil, fmt.Errorf("ask driver %s whether it can change volumes: %w", name, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("driver %s can neither enlarge volumes nor change their attributes", name)
	}
	return out, nil
}
