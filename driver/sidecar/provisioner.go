package sidecar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/capacity/topology"
	ctrl "github.com/kubernetes-csi/external-provisioner/v6/pkg/controller"
	"github.com/kubernetes-csi/external-provisioner/v6/pkg/features"
	snapclientset "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	csitrans "k8s.io/csi-translation-lib"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	provisionTimeout = 10 * time.Second
	provisionWorkers = 100
	capacityPoll     = time.Minute
	snapshotSweep    = 5 * time.Minute
	managedBy        = "external-provisioner"
)

// provisioner is one life of external-provisioner.
type provisioner struct {
	cfg     *Config
	conn    *grpc.ClientConn
	timeout time.Duration
	name    string
	plugin  rpc.PluginCapabilitySet
	caps    rpc.ControllerCapabilitySet

	client    kubernetes.Interface
	snapshots snapclientset.Interface
	factory   informers.SharedInformerFactory
	workers   sync.WaitGroup
}

// provisionOnce is external-provisioner's command without its flags.
func provisionOnce(ctx context.Context, cfg *Config) error {
	p := &provisioner{cfg: cfg, timeout: orDefault(cfg.Timeout, provisionTimeout)}
	var disconnect func()
	var err error
	if p.conn, disconnect, err = connect(ctx, cfg); err != nil {
		return err
	}
	defer disconnect()
	if err := p.meet(ctx); err != nil {
		return err
	}
	core := rest.CopyConfig(cfg.RESTConfig)
	core.ContentType = runtime.ContentTypeProtobuf
	if p.client, err = kubernetes.NewForConfig(core); err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	if p.snapshots, err = snapclientset.NewForConfig(cfg.RESTConfig); err != nil {
		return fmt.Errorf("make snapshot client: %w", err)
	}
	p.factory = informers.NewSharedInformerFactory(p.client, ctrl.ResyncPeriodOfCsiNodeInformer)
	return p.run(ctx)
}

// meet asks the driver what it is.
func (p *provisioner) meet(ctx context.Context) (err error) {
	if err := ctrl.Probe(ctx, p.conn, p.timeout); err != nil {
		return err
	}
	if p.name, err = driverName(ctx, p.conn, p.cfg); err != nil {
		return err
	}
	if p.plugin, p.caps, err = ctrl.GetDriverCapabilities(p.conn, p.timeout); err != nil {
		return fmt.Errorf("ask driver %s for its capabilities: %w", p.name, err)
	}
	return nil
}

func (p *provisioner) run(ctx context.Context) error {
	csiProvisioner, migrated, err := p.csiProvisioner()
	if err != nil {
		return err
	}
	var capacities *capacities
	if p.cfg.CapacityNamespace != "" && p.caps[csi.ControllerServiceCapability_RPC_GET_CAPACITY] {
		if capacities, err = p.capacities(); err != nil {
			return err
		}
		csiProvisioner = capacity.NewProvisionWrapper(csiProvisioner, capacities.controller)
	}
	claims := p.factory.Core().V1().PersistentVolumeClaims()
	options := []func(*controller.ProvisionController) error{
		controller.LeaderElection(false),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(limiter[string](p.cfg)),
		controller.Threadiness(orDefault(p.cfg.Workers, provisionWorkers)),
		controller.CreateProvisionedPVLimiter(workqueue.DefaultTypedControllerRateLimiter[string]()),
		controller.ClaimsInformer(claims.Informer()),
		controller.VolumesInformer(p.factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(p.factory.Storage().V1().StorageClasses().Informer()),
		controller.RetryIntervalMax(orDefault(p.cfg.RetryMax, retryMax)),
		controller.AddFinalizer(true),
	}
	if migrated != "" {
		options = append(options, controller.AdditionalProvisionerNames([]string{migrated}))
	}
	main := controller.NewProvisionController(ctx, p.client, p.name, csiProvisioner, options...)
	main.ControllerWaitGroup(&p.workers)

	cloneQueue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter[string](p.cfg), workqueue.TypedRateLimitingQueueConfig[string]{Name: "claims"})
	defer cloneQueue.ShutDown() // the controller does so too, where the driver can clone and there is one
	cloning := ctrl.NewCloningProtectionController(p.client, claims.Lister(), claims.Informer(), cloneQueue, p.caps)
	var sweeping *ctrl.SnapshotFinalizerController
	if served, err := features.IsVolumeSnapshotV1Available(p.client.Discovery()); err == nil && served {
		sweeping = ctrl.NewSnapshotFinalizerController(p.snapshots, claims.Lister(), p.caps, snapshotSweep)
	}

	p.factory.StartWithContext(ctx)
	defer p.factory.Shutdown()
	if capacities != nil {
		capacities.factory.StartWithContext(ctx)
		defer capacities.factory.Shutdown()
		p.workers.Go(func() { capacities.topology.RunWorker(ctx) })
	}
	// Waiting here, by event, spares the controllers their own waiting in steps of 100 ms.
	p.factory.WaitForCacheSyncWithContext(ctx)
	if capacities != nil {
		p.workers.Go(func() { capacities.controller.Run(ctx, 1, &p.workers) })
	}
	if cloning != nil {
		p.workers.Go(func() { cloning.Run(ctx, 1, &p.workers) })
	}
	if sweeping != nil {
		p.workers.Go(func() { sweeping.Run(ctx, &p.workers) })
	}
	if p.cfg.Started != nil && ctx.Err() == nil {
		p.cfg.Started()
	}
	main.Run(ctx)
	p.workers.Wait()
	return nil
}

// csiProvisioner makes the part that talks to the driver. The second result is the
// name of the in-tree plugin that the driver took over, or empty.
func (p *provisioner) csiProvisioner() (controller.Provisioner, string, error) {
	translator := csitrans.New()
	migrated := ""
	if translator.IsMigratedCSIDriverByName(p.name) {
		var err error
		if migrated, err = translator.GetInTreeNameFromCSIName(p.name); err != nil {
			return nil, "", fmt.Errorf("find the in-tree name of driver %s: %w", p.name, err)
		}
	}
	var attachments storagelisters.VolumeAttachmentLister
	if p.caps[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME] {
		attachments = p.factory.Storage().V1().VolumeAttachments().Lister()
	}
	var nodes corelisters.NodeLister
	var csiNodes storagelisters.CSINodeLister
	var chosen ctrl.TopologyProvider
	if ctrl.SupportsTopology(p.plugin) {
		csiNodes = p.factory.Storage().V1().CSINodes().Lister()
		nodes = p.factory.Core().V1().Nodes().Lister()
		chosen = ctrl.NewInMemoryStore()
	}
	identity := strconv.FormatInt(time.Now().UnixMilli(), 10) + "-" + strconv.Itoa(rand.IntN(10000)) + "-" + p.name
	return ctrl.NewCSIProvisioner(p.client, p.timeout, identity,
		"pvc", -1, // volume names are pvc-<uid of the claim>, uncut
		p.conn, p.snapshots, p.name, p.plugin, p.caps, migrated,
		p.cfg.StrictTopology,
		true, // immediate binding passes the cluster's topology
		translator,
		p.factory.Storage().V1().StorageClasses().Lister(), csiNodes, nodes,
		p.factory.Core().V1().PersistentVolumeClaims().Lister(), attachments,
		nil,  // grants across namespaces are an alpha feature
		true, // extra-create-metadata: the driver is told claim and volume
		p.cfg.DefaultFSType,
		nil,   // not deployed per node
		false, // a ROX claim does not make the PV read-only at attach
		true,  // a restored snapshot may not change its volume mode unasked
		chosen), migrated, nil
}

// capacities is what publishes CSIStorageCapacity objects.
type capacities struct {
	controller *capacity.Controller
	topology   topology.Informer
	factory    informers.SharedInformerFactory // of the objects' own namespace
}

func (p *provisioner) capacities() (*capacities, error) {
	client, err := kubernetes.NewForConfig(p.cfg.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("make API client for capacities: %w", err)
	}
	c := &capacities{
		topology: topology.NewNodeTopology(p.name, client, p.factory.Core().V1().Nodes(), p.factory.Storage().V1().CSINodes(),
			workqueue.NewTypedRateLimitingQueueWithConfig(limiter[string](p.cfg), workqueue.TypedRateLimitingQueueConfig[string]{Name: "csitopology"})),
		factory: informers.NewSharedInformerFactoryWithOptions(client, ctrl.ResyncPeriodOfCsiNodeInformer,
			informers.WithNamespace(p.cfg.CapacityNamespace),
			informers.WithTweakListOptions(func(lo *metav1.ListOptions) {
				lo.LabelSelector = labels.Set{capacity.DriverNameLabel: p.name, capacity.ManagedByLabel: managedBy}.AsSelector().String()
			})),
	}
	c.controller = capacity.NewCentralCapacityController(csi.NewControllerClient(p.conn), p.name, client.StorageV1(),
		workqueue.NewTypedRateLimitingQueueWithConfig(limiter[capacity.QueueKey](p.cfg), workqueue.TypedRateLimitingQueueConfig[capacity.QueueKey]{Name: "csistoragecapacity"}),
		nil, // no owner: no pod of ours holds these objects
		managedBy, p.cfg.CapacityNamespace, c.topology,
		p.factory.Storage().V1().StorageClasses(), c.factory.Storage().V1().CSIStorageCapacities(),
		capacityPoll,
		false, // not for classes that bind at once: the scheduler does not ask
		p.timeout)
	return c, nil
}

func limiter[T comparable](cfg *Config) workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](orDefault(cfg.RetryStart, retryStart), orDefault(cfg.RetryMax, retryMax))
}
