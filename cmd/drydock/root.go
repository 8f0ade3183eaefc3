package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

// flags are those that several commands share.
type flags struct {
	name, state         string
	ephemeral           bool
	listen              string
	nodes               int
	devices             string
	driver              string
	logLevel, logFormat string
	gates               string
	without             []string
	failOnLeak          bool
	api                 apiFlags
}

func newRoot() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:   "drydock",
		Short: "The storage half of a Kubernetes cluster, in one process",
		Long: `drydock runs the storage half of a Kubernetes cluster in one process: a fake
block-storage cloud, a Kubernetes API, a CSI driver with the upstream sidecars,
simulated nodes, and a dashboard that shows every volume on its way.

  drydock demo      start a cluster and watch one volume from claim to running pod
  drydock up        start a cluster and leave it to you

Each flag can also be given by an environment variable: --log-level is DRYDOCK_LOG_LEVEL.
Exit codes: 0 done, 1 failed, 2 wrong command line, 3 the cluster does not run,
4 the cluster runs already, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       cluster.Version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see \"drydock --help\"", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags())
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	p := root.PersistentFlags()
	p.StringVar(&f.name, "name", cluster.DefaultName, "name of the cluster")
	p.StringVar(&f.state, "state", "", "state directory (default $XDG_STATE_HOME/drydock/NAME)")
	root.AddCommand(
		newUp(f), newDemo(f), newDown(f), newStatus(f), newKubeconfig(f), newEnv(f), newApply(f), newDelete(f), newGet(f),
		newKubectl(f), newDoctor(), newCheck(f), newCloud(f), newNode(f), newFault(f), newClock(f), newLab(), newVersion(), newBackup(f), newRestore(f),
	)
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes a wrong number of arguments a usage error that says which are right.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w; write: %s", err, cmd.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// fromEnvironment sets each flag that the command line leaves out from DRYDOCK_ and its name.
func fromEnvironment(set *pflag.FlagSet) error {
	var errs []error
	set.VisitAll(func(f *pflag.Flag) {
		name := "DRYDOCK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v, ok := os.LookupEnv(name); ok && !f.Changed && f.Name != "help" && f.Name != "version" {
			if err := set.Set(f.Name, v); err != nil {
				errs = append(errs, usageError{fmt.Errorf("environment variable %s: %w", name, err)})
			}
		}
	})
	return errors.Join(errs...)
}

func (f *flags) addRun(p *pflag.FlagSet) {
	p.BoolVar(&f.ephemeral, "ephemeral", false, "keep the state in a temporary directory and remove it at the end")
	p.StringVar(&f.listen, "listen", cluster.DefaultListen, "loopback address to listen on; port 0 takes a free one")
	p.IntVar(&f.nodes, "nodes", cluster.DefaultNodes, "how many nodes to simulate")
	p.StringVar(&f.devices, "devices", string(host.Auto), "auto, loop (real devices, needs root) or sim (simulated)")
	p.StringVar(&f.driver, "driver-name", cluster.DefaultDriver, "name of the CSI driver, for manifests written for another one")
	p.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	p.StringVar(&f.logFormat, "log-format", "text", "text or json")
}

// options are the cluster's options that the flags ask for.
func (f *flags) options(logs io.Writer) (cluster.Options, error) {
	mode, err := host.ParseMode(f.devices)
	if err != nil {
		return cluster.Options{}, usageError{err}
	}
	log, err := f.logger(logs)
	if err != nil {
		return cluster.Options{}, err
	}
	api, err := f.api.options()
	if err != nil {
		return cluster.Options{}, usageError{err}
	}
	var gates cluster.Gates
	if err := gates.Set(f.gates); err != nil {
		return cluster.Options{}, usageError{err}
	}
	return cluster.Options{
		API: api, Gates: gates, Without: f.without, Name: f.name, State: f.state, Ephemeral: f.ephemeral, Listen: f.listen, Nodes: f.nodes, Devices: mode, Driver: f.driver, Log: log,
	}, nil
}

func (f *flags) logger(w io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil || f.logLevel == "" {
		return zerolog.Nop(), usageError{fmt.Errorf("log level %q: use debug, info, warn or error", f.logLevel)}
	}
	switch f.logFormat {
	case "json":
	case "text":
		file, ok := w.(*os.File)
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !ok || !term.IsTerminal(int(file.Fd()))}
	default:
		return zerolog.Nop(), usageError{fmt.Errorf("log format %q: use text or json", f.logFormat)}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

// layout is the state directory that the flags name.
func (f *flags) layout() (cluster.Layout, error) {
	if f.state != "" {
		dir, err := filepath.Abs(f.state)
		return cluster.Layout{Root: dir}, err
	}
	dir, err := cluster.DefaultState(f.name)
	if err != nil {
		return cluster.Layout{}, usageError{err}
	}
	return cluster.Layout{Root: dir}, nil
}
