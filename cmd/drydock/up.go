package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/labobjects"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// readyWait bounds how long a start may take before it is called failed.
const readyWait = time.Minute

// brokenWait is the same for a cluster that stored faults may keep from being ready.
const brokenWait = 5 * time.Second

// stopWait bounds an orderly stop, whatever hangs.
const stopWait = 4500 * time.Millisecond

// accountWait bounds the account of leftovers at the stop.
const accountWait = 400 * time.Millisecond

func newUp(f *flags) *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and keep it until Ctrl-C",
		Long: `Start a cluster. It is ready in well under a second and stays until Ctrl-C or
"drydock down". Its state outlives it: the next "drydock up" of the same name goes on
where it was, also after a kill -9 (unless --ephemeral).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if detach {
				return f.detach(cmd.Context(), cmd.OutOrStdout())
			}
			return f.runCluster(cmd, func(ctx context.Context, c *cluster.Cluster, out io.Writer) error {
				fmt.Fprintf(out, "\n  dashboard   %s/\n  kubectl     export KUBECONFIG=%s\n  stop        Ctrl-C\n", c.URL(), c.Layout.Kubeconfig())
				<-ctx.Done()
				return nil
			})
		},
	}
	f.addRun(cmd.Flags())
	f.api.add(cmd.Flags())
	cmd.Flags().StringVar(&f.gates, "feature-gates", "", "upstream's alpha features: CSIVolumeHealth=true has kubelets ask drivers each minute how their volumes are")
	cmd.Flags().StringSliceVar(&f.without, "without", nil, "leave these sidecars out, for your own to take their place: "+strings.Join(cluster.Sidecars, ", "))
	cmd.Flags().BoolVar(&f.failOnLeak, "fail-on-leak", false, "fail at the stop if the cloud then holds what no Kubernetes object justifies")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "return when the cluster is ready and leave it running")
	return cmd
}

// runCluster starts a cluster, waits until it is ready, lets then do its work, and stops the cluster.
func (f *flags) runCluster(cmd *cobra.Command, then func(context.Context, *cluster.Cluster, io.Writer) error) (err error) {
	begin, out := time.Now(), cmd.OutOrStdout()
	o, err := f.options(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	mode, _, err := host.Examine().Decide(o.Devices)
	if err != nil {
		return err
	}
	if mode == host.Loop {
		if err := host.EnterPrivate(); err != nil {
			if o.Devices == host.Loop {
				return fmt.Errorf("real devices cannot be had here: %w; use --devices sim", err)
			}
			fmt.Fprintf(out, "drydock: devices are simulated: %v\n", err)
			o.Devices = host.Sim
		}
	}
	cluster.RouteLogs(o.Log)
	host.KeepHeadroom()
	c, err := cluster.Start(cmd.Context(), o)
	if err != nil {
		return err
	}
	accounted := false
	defer func() {
		stopped := time.Now()
		if accounted {
			err = errors.Join(err, f.closingAccount(c, out))
		}
		stuck := time.AfterFunc(stopWait, func() {
			// Crash-only: ending here loses nothing, and the kernel takes devices and mounts away.
			fmt.Fprintf(cmd.ErrOrStderr(), "drydock: cluster %s did not stop within %s and is ended; its state is safe\n", c.Name(), stopWait)
			os.Exit(exitFailed)
		})
		e := c.Close()
		stuck.Stop()
		if err == nil {
			err = e
		}
		if err == nil {
			fmt.Fprintf(out, "stopped cluster %s in %s\n", c.Name(), time.Since(stopped).Round(time.Millisecond))
		}
	}()
	faults, err := c.FaultsInForce(cmd.Context())
	if err != nil {
		return err
	}
	wait := readyWait
	if len(faults) > 0 {
		wait = brokenWait
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), wait)
	defer cancel()
	ready := "ready"
	if err := c.WaitReady(ctx); err != nil {
		if cmd.Context().Err() != nil {
			return nil
		}
		if len(faults) == 0 {
			return err
		}
		ready = "up and not ready" // who broke it on purpose has to be able to mend it
	}
	what := "the Kubernetes API only"
	if nodes := c.NodeNames(); len(nodes) > 0 {
		what = fmt.Sprintf("%d nodes (%s to %s), %s", len(nodes), nodes[0], nodes[len(nodes)-1], c.Reason)
	}
	fmt.Fprintf(out, "cluster %s is %s in %s: %s\n", c.Name(), ready, time.Since(begin).Round(time.Millisecond), what)
	if len(faults) > 0 {
		fmt.Fprintf(out, "broken on purpose: %s; see \"drydock fault list%s\"\n", strings.Join(faults, ", "), f.suffix())
	}
	announceReady()
	accounted = true
	if err := host.GiveBackStart(); err != nil {
		o.Log.Warn().Err(err).Msg("more memory stays resident than is needed")
	}
	return then(cmd.Context(), c, out)
}

// closingAccount says what the cluster leaves in its cloud when it stops.
func (f *flags) closingAccount(c *cluster.Cluster, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), accountWait)
	defer cancel()
	charges, err := c.Account(ctx, 0)
	if err != nil {
		return nil // a cloud that is down cannot say
	}
	printAccount(out, charges)
	if f.failOnLeak && len(charges) > 0 {
		return errLeak
	}
	return nil
}

// readyVariable is set for a detached process, which tells on its descriptor 3 that it is ready.
const readyVariable = "DRYDOCK_READY_FD"

func announceReady() {
	if os.Getenv(readyVariable) == "" {
		return
	}
	os.Unsetenv(readyVariable)
	f := os.NewFile(3, "ready")
	f.WriteString("ready\n")
	f.Close()
}

// detach starts this program once more, in a session of its own, and returns when that one is ready.
func (f *flags) detach(ctx context.Context, out io.Writer) error {
	if f.ephemeral {
		return usageError{errors.New("--detach and --ephemeral exclude each other: nobody could find the cluster to stop it")}
	}
	if _, err := f.options(io.Discard); err != nil {
		return err
	}
	l, err := f.layout()
	if err != nil {
		return err
	}
	state, err := filepath.Abs(l.Root)
	if err != nil {
		return err
	}
	args := append([]string{"up", "--name", f.name, "--state", state, "--listen", f.listen, "--nodes", fmt.Sprint(f.nodes),
		"--devices", f.devices, "--driver-name", f.driver, "--log-level", f.logLevel, "--log-format", f.logFormat, "--feature-gates", f.gates, "--without", strings.Join(f.without, ",")}, f.api.args()...)
	if err := spawn(ctx, l, nil, args...); err != nil {
		return err
	}
	run, err := f.find()
	if err != nil {
		return err
	}
	lab, err := v1alpha1.NewClient(run.rest)
	if err != nil {
		return err
	}
	faults, err := labobjects.Names(ctx, lab)
	if err != nil {
		return err
	}
	how := "is ready"
	if len(faults) > 0 {
		how = "is up, and broken on purpose (" + strings.Join(faults, ", ") + "),"
	}
	fmt.Fprintf(out, "cluster %s %s in process %d\n\n  dashboard   %s/\n  kubectl     export KUBECONFIG=%s\n  stop        %s down%s\n",
		f.name, how, run.pid, run.url(), l.Kubeconfig(), os.Args[0], f.suffix())
	return nil
}

// spawn starts this program once more, in a session of its own with its words in the
// log of a state directory, and returns when that one says that it is ready.
func spawn(ctx context.Context, l cluster.Layout, env []string, args ...string) error {
	if err := os.MkdirAll(l.Root, 0o700); err != nil {
		return fmt.Errorf("make state directory %s: %w", l.Root, err)
	}
	log, err := os.OpenFile(l.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	from, _ := log.Seek(0, io.SeekEnd)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program file: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	child := exec.Command(self, args...)
	child.Env = append(append(os.Environ(), env...), readyVariable+"=3")
	child.Stdout, child.Stderr, child.ExtraFiles = log, log, []*os.File{w}
	ownSession(child)
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the process: %w", err)
	}
	w.Close()
	stop := context.AfterFunc(ctx, func() { child.Process.Signal(os.Interrupt) })
	defer stop()
	if b, _ := io.ReadAll(r); string(b) == "ready\n" {
		return nil
	}
	waitErr := child.Wait()
	words := tailFrom(l.Log(), from)
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		fmt.Fprint(os.Stderr, words)
		return exitCode(exit.ExitCode())
	}
	return fmt.Errorf("the process ended before it was ready; %s says: %s", l.Log(), words)
}

// suffix repeats the flags that name this cluster, for commands that are shown to the user.
func (f *flags) suffix() string {
	var s strings.Builder
	if f.name != cluster.DefaultName {
		s.WriteString(" --name " + f.name)
	}
	if f.state != "" {
		s.WriteString(" --state " + f.state)
	}
	return s.String()
}

func tailFrom(path string, from int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	file.Seek(from, io.SeekStart)
	b, _ := io.ReadAll(io.LimitReader(file, 64<<10))
	return string(b)
}
