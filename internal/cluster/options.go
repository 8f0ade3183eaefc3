package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/driver/sidecar"
	"drydock.dev/drydock/internal/host"
)

// The names that a cluster has when nobody says otherwise.
const (
	DefaultName   = "default"
	DefaultListen = "127.0.0.1:7474"
	DefaultNodes  = 3
	DefaultDriver = "csi.drydock.dev"
	Region        = "nyc3"
)

// maxNodes bounds --nodes: each node has goroutines, watches and a lease.
const maxNodes = 250

// Options of a cluster. The zero value of each field means its default.
type Options struct {
	Name      string
	State     string // directory; derived from Name when empty
	Ephemeral bool   // use a temporary directory and remove it at the end
	Listen    string
	Nodes     int
	Devices   host.Mode
	Driver    string // the CSI driver's name
	Log       zerolog.Logger
	Version   string
	API       APIOptions
	Gates     Gates
	Without   []string // sidecars that are left out, for others to take their place: see Sidecars
}

// Sidecars are the parts that a cluster can be without: they are linked in, and the released programs do the same.
var Sidecars = []string{"provisioner", "attacher", "resizer"}

// Gates are upstream's feature gates that are off by default and that drydock can open.
type Gates struct {
	CSIVolumeHealth bool // alpha in 1.37: kubelets ask drivers each minute how their volumes are
}

// Set opens or closes gates by their names, as kubelet's --feature-gates does: Name=true,Other=false.
func (g *Gates) Set(list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" && value == "" {
			continue
		}
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("feature gate %q: write it as CSIVolumeHealth=true", pair)
		}
		switch name {
		case "CSIVolumeHealth":
			g.CSIVolumeHealth = on
		default:
			return fmt.Errorf("feature gate %q: the only one that can be opened is CSIVolumeHealth; what upstream has on by default is on", name)
		}
	}
	return nil
}

// APIOptions say how the Kubernetes API is served, and whether there is more than it.
type APIOptions struct {
	Durability    string // of the API's database: normal, full or memory
	Authorization string // always-allow or rbac
	AuditLog      string // file that gets a line for each request; empty wants none
	TokenVolume   bool   // each pod gets the volume with its service account's token, unless it or the account opts out
	// ComponentManagedFields has the writes of the components in managedFields, as upstream has those of everybody.
	ComponentManagedFields bool
	Only                   bool // no nodes, no cloud, no driver: what envtest gives
	Controllers            bool // with Only: the controllers all the same
}

// What the API options are when nobody says otherwise.
const (
	DefaultDurability    = "normal"
	DefaultAuthorization = "always-allow"
)

var (
	durabilities   = map[string]storage.Durability{DefaultDurability: storage.Normal, "full": storage.Full, "memory": storage.Memory}
	authorizations = map[string]server.Authorization{DefaultAuthorization: server.AlwaysAllow, "rbac": server.RBAC}
)

var driverName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9.]{0,61}[a-zA-Z0-9])?$`)

// OptionError is the kind of error that options get which cannot work together or at all.
type OptionError struct{ error }

func (e OptionError) Unwrap() error { return e.error }

// complete fills in defaults and refuses what cannot work, before anything is made.
func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if !clusterName.MatchString(o.Name) {
		return fmt.Errorf("cluster name %q: use up to 40 lower-case letters, digits and dashes", o.Name)
	}
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	hostPart, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w; write it as 127.0.0.1:7474", o.Listen, err)
	}
	if !loopbackHost(hostPart) {
		return fmt.Errorf("listen address %q is not loopback: drydock runs commands as you and never listens to the network; use 127.0.0.1", o.Listen)
	}
	if o.API.Durability == "" {
		o.API.Durability = DefaultDurability
	}
	if _, ok := durabilities[o.API.Durability]; !ok {
		return fmt.Errorf("durability %q: use normal, full or memory", o.API.Durability)
	}
	if o.API.Authorization == "" {
		o.API.Authorization = DefaultAuthorization
	}
	if _, ok := authorizations[o.API.Authorization]; !ok {
		return fmt.Errorf("authorization %q: use always-allow or rbac", o.API.Authorization)
	}
	if o.API.Controllers && !o.API.Only {
		return errors.New("--controllers belongs to --api-only: otherwise they run anyway")
	}
	for _, name := range o.Without {
		if !slices.Contains(Sidecars, name) {
			return fmt.Errorf("without %q: what can be left out is %s", name, strings.Join(Sidecars, ", "))
		}
	}
	if o.Nodes == 0 {
		o.Nodes = DefaultNodes
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: from 1 to %d are possible", o.Nodes, maxNodes)
	}
	if o.Devices == "" {
		o.Devices = host.Auto
	}
	if o.Driver == "" {
		o.Driver = DefaultDriver
	}
	if !driverName.MatchString(o.Driver) || strings.ToLower(o.Driver) != o.Driver {
		return fmt.Errorf("driver name %q: use up to 63 lower-case letters, digits, dots and dashes", o.Driver)
	}
	if o.Version == "" {
		o.Version = Version()
	}
	if o.Ephemeral && o.State != "" {
		return errors.New("--ephemeral and --state exclude each other: an ephemeral cluster's directory is temporary")
	}
	switch {
	case o.Ephemeral:
		o.State, err = os.MkdirTemp("", "drydock-"+o.Name+"-")
		if err != nil {
			return fmt.Errorf("make a temporary state directory: %w", err)
		}
	case o.State == "":
		if o.State, err = DefaultState(o.Name); err != nil {
			return err
		}
	}
	if o.State, err = filepath.Abs(o.State); err != nil {
		return fmt.Errorf("find state directory %s: %w", o.State, err)
	}
	return nil
}

// version is set by the Makefile's linker flags.
var version string

// Version is what this program says it is.
func Version() string {
	if version != "" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return strings.TrimPrefix(bi.Main.Version, "v")
	}
	return "0.1.0-dev"
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// RouteLogs carries what the libraries log without a context into log. It sets the
// process's one logger of theirs, so only a main function calls it, once, before Start.
func RouteLogs(log zerolog.Logger) { sidecar.RouteKlog(log) }
