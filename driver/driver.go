// Package driver is a complete CSI driver for DigitalOcean block storage. It speaks
// to the cloud through godo only, so the fake cloud and the real one look the same
// to it, and it needs nothing from Kubernetes.
//
// Promises.
//
//   - Calls are idempotent. A call that was repeated because its answer was lost
//     ends where the first one did: one volume of a name, one attachment, at most
//     one finished mkfs of a device.
//   - A device is formatted only when it is proven blank. A probe that fails is an
//     error, never a blank. See docs/decisions for how a format that was cut short
//     is told from data.
//   - CreateVolume answers with a code that a provisioner takes as final only when
//     it knows that no volume came of the call. An unknown outcome is Unavailable or
//     DeadlineExceeded, so that the provisioner asks again instead of forgetting.
//   - The calls of one volume do not overlap: the second is answered Aborted.
//
// A process may serve the controller side, the node side or both, as configured. It
// does not do LUKS, clones of volumes, or access from several nodes.
package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/rs/zerolog"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/inprocess"
	"drydock.dev/drydock/internal/lab"
)

// DefaultName is the driver's name where none is configured.
const DefaultName = "csi.drydock.dev"

// RegionKey is the topology key, the one that csi-digitalocean uses.
const RegionKey = "region"

// Config of a Driver. Name, Endpoint and one of Controller and Node are needed.
type Config struct {
	Name    string // as in StorageClass.provisioner
	Version string // of the program, shown by GetPluginInfo
	// Endpoint is the path of the unix socket that Run listens on.
	Endpoint   string
	Controller *ControllerConfig // nil: this process serves no controller calls
	Node       *NodeConfig       // nil: this process serves no node calls
	Lab        *lab.Lab          // nil: a lab without rules
	// Component is the life that this driver is a part of. Nil: it cannot be killed.
	Component *lab.Component
	Log       zerolog.Logger
}

// ControllerConfig is how the controller side reaches the cloud.
type ControllerConfig struct {
	CloudURL string // base URL of the API; empty is the real cloud
	Token    string
	Region   string // volumes are made and listed in this region
	// Transport carries the requests to the cloud; nil is one of HTTP's own.
	Transport http.RoundTripper
}

// NodeConfig describes the machine that the node side runs on.
type NodeConfig struct {
	// MetadataURL is the base of the droplet metadata service, http://169.254.169.254 on a droplet.
	MetadataURL string
	HTTPClient  *http.Client // for the metadata service; nil is a plain one
	DeviceDir   string       // where links to attached volumes appear; empty is /dev/disk/by-id
	Mounter     mount.Interface
	Simulated   bool  // devices are simulated, and Mounter is a *mounts.Table
	MaxVolumes  int64 // that the machine takes; zero is DefaultMaxVolumes
}

// DefaultMaxVolumes is what the cloud's documentation says that a droplet takes.
const DefaultMaxVolumes = 15

// Driver serves CSI on one socket.
type Driver struct {
	cfg        Config
	lab        *lab.Lab
	controller *controller // nil when not configured
	node       *node       // nil when not configured
	local      *inprocess.Conn
}

// pluginName is the CSI specification's rule for a plugin's name.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$`)

// New checks the configuration. It opens nothing and starts nothing.
func New(cfg Config) (*Driver, error) {
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if cfg.Lab == nil {
		cfg.Lab = lab.New(lab.Options{})
	}
	switch {
	case !pluginName.MatchString(cfg.Name):
		return nil, fmt.Errorf("driver name %q: use up to 63 letters, digits, dots and dashes, as in a domain name", cfg.Name)
	case cfg.Endpoint == "":
		return nil, errors.New("start driver: no socket path is given")
	case cfg.Controller == nil && cfg.Node == nil:
		return nil, errors.New("start driver: neither the controller side nor the node side is configured")
	}
	d := &Driver{cfg: cfg, lab: cfg.Lab}
	ops := ops{lab: cfg.Lab, component: cfg.Component, log: cfg.Log}
	if c := cfg.Controller; c != nil {
		cloud, err := newCloud(*c, ops)
		if err != nil {
			return nil, err
		}
		d.controller = &controller{name: cfg.Name, cloud: cloud, ops: ops, locks: newLocks(), droplets: newQueues()}
	}
	if n := cfg.Node; n != nil {
		node, err := newNode(cfg.Name, *n, ops)
		if err != nil {
			return nil, err
		}
		d.node = node
	}
	d.local = d.within()
	return d, nil
}

// Run serves until ctx ends, then lets the calls in flight finish for a moment, ends
// them, and returns when all of them have returned. It may be called once.
func (d *Driver) Run(ctx context.Context) error {
	if d.controller != nil {
		defer d.controller.cloud.close()
	}
	if d.node != nil {
		defer d.node.close()
	}
	return d.serve(ctx)
}
