package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/apiserverlite/controllers/namespace"
	"drydock.dev/drydock/driver"
	"drydock.dev/drydock/driver/sidecar"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/mounts"
	"drydock.dev/drydock/nodesim"
)

// maxVolumes is how many volumes a simulated node takes.
const maxVolumes = 128

// What a deployment of the driver gives its sidecars as flags.
const (
	// defaultFSType is written into volumes whose class names none, so that a pod's fsGroup has effect on them.
	defaultFSType = "ext4"
	// retryStart is the sidecars' first pause after a failure. Upstream's second is made for clouds far away.
	retryStart = 20 * time.Millisecond
)

// installDriver does what the driver's manifests would: it registers the CSIDriver object.
func (c *Cluster) installDriver(ctx context.Context) error {
	yes, no := true, false
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	want := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: c.opts.Driver},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: &yes, PodInfoOnMount: &no, FSGroupPolicy: &policy,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
	_, err := c.client.StorageV1().CSIDrivers().Create(ctx, want, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register driver %s: %w", c.opts.Driver, err)
	}
	return nil
}

// addParts lists what runs, in start order.
func (c *Cluster) addParts() {
	if !c.opts.API.Only {
		c.parts.add("cloud", "", c.cloud.run)
	}
	c.parts.add("web", "", c.web.run)
	if !c.opts.API.Only || c.opts.API.Controllers {
		c.parts.add("controllers", "", c.runControllers)
	}
	if c.opts.API.Only {
		return
	}
	driverName := c.opts.Driver
	real, proxy := c.Layout.ControllerDriverSocket(driverName), c.Layout.ControllerSocket(driverName)
	c.parts.add("proxy", "", c.proxy(real, proxy, "", "controller"))
	c.parts.add("driver", "", func(ctx context.Context, life *lab.Component) error {
		return c.runDriver(ctx, driver.Config{
			Endpoint: real, Component: life,
			Controller: &driver.ControllerConfig{CloudURL: c.URL(), Token: c.Token(), Region: Region, Transport: c.line("driver")},
		})
	})
	sidecars := map[string]func(context.Context, *lab.Component) error{
		"provisioner": func(ctx context.Context, life *lab.Component) error {
			return sidecar.RunProvisioner(ctx, sidecar.Config{
				RESTConfig: c.RESTConfig("provisioner"), Address: proxy, DriverName: driverName, Component: life, Log: c.boxLog("provisioner"),
				DefaultFSType: defaultFSType, RetryStart: retryStart})
		},
		"attacher": func(ctx context.Context, life *lab.Component) error {
			return sidecar.RunAttacher(ctx, sidecar.Config{
				RESTConfig: c.RESTConfig("attacher"), Address: proxy, DriverName: driverName, Component: life, Log: c.boxLog("attacher"), RetryStart: retryStart})
		},
		"resizer": func(ctx context.Context, life *lab.Component) error {
			return sidecar.RunResizer(ctx, sidecar.Config{
				RESTConfig: c.RESTConfig("resizer"), Address: proxy, DriverName: driverName, Component: life, Log: c.boxLog("resizer"), RetryStart: retryStart})
		},
	}
	for _, name := range Sidecars {
		if !slices.Contains(c.opts.Without, name) {
			c.parts.add(name, "", sidecars[name])
		}
	}
	for _, n := range c.NodeNames() {
		c.addNode(n)
	}
}

// runControllers is one life of the controllers.
func (c *Cluster) runControllers(ctx context.Context, life *lab.Component) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig("controllers"))
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(c.RESTConfig("controllers"))
	if err != nil {
		return err
	}
	return controllers.Run(ctx, controllers.Config{
		Client: client, Metadata: objects, Lab: c.Lab, Component: life, Log: c.boxLog("controllers"),
		Namespace: namespace.Options{RootCA: string(c.id.ca)},
	})
}

// addNode lists what runs on a node: its kubelet and the driver's DaemonSet pod.
func (c *Cluster) addNode(n string) {
	l, driverName := c.Layout, c.opts.Driver
	real, proxy := l.NodeDriverSocket(n, driverName), l.NodeSocket(n, driverName)
	c.parts.add("kubelet", n, func(ctx context.Context, life *lab.Component) error {
		m := c.machines[n]
		own := &lab.Lab{Clock: m.time, Faults: c.Lab.Faults, Timeline: c.Lab.Timeline} // the node's clock may be wrong
		node, err := nodesim.New(nodesim.Config{
			Name: n, Root: l.Node(n), RESTConfig: c.RESTConfig("kubelet/" + n), Lab: own, Component: life, Boot: m.boot(), Tap: true, Tapped: []string{proxy}, Within: c.within,
			Mounter: c.mounter(n), Simulated: c.Mode == host.Sim, VolumeHealth: c.opts.Gates.CSIVolumeHealth, Log: c.boxLog("kubelet").With().Str("node", n).Logger(),
		})
		if err != nil {
			return err
		}
		m.lives(node)
		defer m.lives(nil)
		return node.Run(ctx)
	})
	c.parts.add("proxy", n, c.proxy(real, proxy, n, "kubelet"))
	c.parts.add("driver", n, func(ctx context.Context, life *lab.Component) error {
		return c.runDriver(ctx, driver.Config{
			Endpoint: real, Component: life,
			Node: &driver.NodeConfig{
				MetadataURL: "http://169.254.169.254", HTTPClient: c.metadataClient(n), DeviceDir: l.Links(n), Mounter: c.mounter(n),
				Simulated: c.Mode == host.Sim, MaxVolumes: maxVolumes,
			},
		})
	})
	c.parts.add("registrar", n, func(ctx context.Context, life *lab.Component) error {
		return sidecar.RunRegistrar(ctx, sidecar.RegistrarConfig{
			Address: real, RegistryDir: l.Registry(n), KubeletSocket: proxy, Component: life, Log: c.boxLog("registrar").With().Str("node", n).Logger()})
	})
}

func (c *Cluster) runDriver(ctx context.Context, cfg driver.Config) error {
	select { // a cloud is there before the machines in it are
	case <-c.cloud.answered:
	case <-ctx.Done():
		return nil
	}
	cfg.Name, cfg.Version, cfg.Lab, cfg.Log = c.opts.Driver, c.opts.Version, c.Lab, c.boxLog("driver")
	d, err := driver.New(cfg)
	if err != nil {
		return err
	}
	c.drivers.Store(cfg.Endpoint, d)
	defer c.drivers.Delete(cfg.Endpoint)
	return d.Run(ctx)
}

func (c *Cluster) proxy(target, listen, node, caller string) func(context.Context, *lab.Component) error {
	local := func() grpc.ClientConnInterface {
		if d, ok := c.drivers.Load(target); ok {
			return d.(*driver.Driver).Conn()
		}
		return nil
	}
	return func(ctx context.Context, _ *lab.Component) error {
		p, err := lab.NewProxy(lab.ProxyConfig{Listen: listen, Target: target, Local: local, Lab: c.Lab, Node: node, Caller: caller, Log: c.boxLog("proxy")})
		if err != nil {
			return err
		}
		c.proxies.Store(listen, p)
		defer c.proxies.Delete(listen)
		return p.Serve(ctx)
	}
}

// within is a connection to the proxy that listens at a socket, without the socket; nil while there is none.
func (c *Cluster) within(socket string) grpc.ClientConnInterface {
	if p, ok := c.proxies.Load(socket); ok {
		return p.(*lab.Proxy).Conn()
	}
	return nil
}

func (c *Cluster) mounter(n string) mount.Interface {
	if t := c.tables[n]; t != nil {
		return t
	}
	return mounts.New()
}

// metadataClient reaches the droplet metadata service as the droplet of that node does: through a proxy that knows who asks.
func (c *Cluster) metadataClient(n string) *http.Client {
	via := &url.URL{Scheme: "http", Host: c.Addr, User: url.User(n)}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(via)}}
}

// Purge removes a cluster's state directory. It refuses one that is not ours, one that holds what is not ours, and one with
// mounts below it.
func Purge(l Layout) error {
	if !l.IsState() {
		return fmt.Errorf("%s is not a drydock state directory; nothing was removed", l.Root)
	}
	entries, err := os.ReadDir(l.Root)
	if err != nil {
		return fmt.Errorf("remove state directory: %w", err)
	}
	for _, e := range entries {
		if l.named(e.Name()) == "" {
			return fmt.Errorf("%s holds %s, which is not drydock's; move it away first, nothing was removed", l.Root, e.Name())
		}
	}
	below, err := mountsBelow(l.Root)
	if err != nil {
		return err
	}
	if len(below) > 0 {
		return fmt.Errorf("%s has a mount below it (%s); unmount it first, nothing was removed", l.Root, below[0])
	}
	// The version goes last: a removal that is cut short is finished by the next one.
	var errs []error
	for _, e := range entries {
		if p := filepath.Join(l.Root, e.Name()); p != l.Version() {
			errs = append(errs, os.RemoveAll(p))
		}
	}
	if err = errors.Join(errs...); err == nil {
		err = os.Remove(l.Version())
	}
	if err == nil {
		err = os.Remove(l.Root)
	}
	if err != nil {
		return fmt.Errorf("remove state directory %s: %w", l.Root, err)
	}
	return nil
}
