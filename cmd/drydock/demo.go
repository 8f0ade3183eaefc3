package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/examples"
	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/stages"
)

// demoWait is after how long without a step the demo says that it waits.
const demoWait = 15 * time.Second

func newDemo(f *flags) *cobra.Command {
	var exit bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a cluster and walk one volume from claim to running pod",
		Long: `Start a cluster, apply the example (a StorageClass, a claim, a pod), and show each step
of the volume as it happens with its duration. The cluster stays until Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.runCluster(cmd, func(ctx context.Context, c *cluster.Cluster, out io.Writer) error {
				return f.demo(ctx, c, out, exit)
			})
		},
	}
	f.addRun(cmd.Flags())
	cmd.Flags().BoolVar(&exit, "exit", false, "stop when the pod runs")
	return cmd
}

func (f *flags) demo(ctx context.Context, c *cluster.Cluster, out io.Writer, exit bool) error {
	var objs []manifest
	for _, name := range examples.Demo {
		b, err := examples.FS.ReadFile(name)
		if err != nil {
			return err
		}
		// The example names the default driver; the cluster may have been given another name for it.
		b = bytes.ReplaceAll(b, []byte(cluster.DefaultDriver), []byte(c.Driver()))
		list, err := decodeManifests(bytes.NewReader(b), "examples/"+name)
		if err != nil {
			return err
		}
		objs = append(objs, list...)
	}
	cfg := c.RESTConfig("cli")
	k, err := newKube(cfg)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	lives, err := c.WatchLives(watching)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nkubectl apply -f examples/")
	if err := k.apply(ctx, indent{out}, objs, metav1.NamespaceDefault); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if !follow(ctx, out, lives, stages.Ref{Namespace: metav1.NamespaceDefault, Name: claimName(objs)}) {
		return nil
	}
	cancel()
	if exit {
		return nil
	}
	s, self := f.suffix(), os.Args[0]
	where, err := c.Published(ctx, metav1.NamespaceDefault, podName(objs))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `
the pod runs. Its data lies in
  %[1]s

  dashboard   %[2]s/

try next, in another terminal:
  eval "$(%[3]s env%[4]s)" && kubectl get pods,pvc,pv,volumeattachments
  %[3]s delete%[4]s -f examples/pod.yaml      # and watch the way back in the dashboard
  %[3]s check%[4]s                            # API, cloud, kernel and files agree

Ctrl-C stops the cluster; its state stays for the next time.
`, where, c.URL(), self, s)
	<-ctx.Done()
	return nil
}

func claimName(objs []manifest) string { return firstOf(objs, "PersistentVolumeClaim") }
func podName(objs []manifest) string   { return firstOf(objs, "Pod") }

func firstOf(objs []manifest, kind string) string {
	for _, o := range objs {
		if o.GetKind() == kind {
			return o.GetName()
		}
	}
	return ""
}

// follow prints each step of the claim's life as it happens, until the pod runs. It tells whether it came that far.
func follow(ctx context.Context, out io.Writer, lives <-chan stages.Life, want stages.Ref) bool {
	progress := stages.NewProgress()
	quiet := time.NewTimer(demoWait)
	defer quiet.Stop()
	var last stages.Life
	for {
		select {
		case <-ctx.Done():
			return false
		case <-quiet.C:
			if last.Doing != "" {
				fmt.Fprintf(out, "    ... %s\n", last.Doing)
			}
			quiet.Reset(demoWait)
		case life, ok := <-lives:
			if !ok {
				return false
			}
			if life.Ref != want {
				continue
			}
			last = life
			quiet.Reset(demoWait)
			for _, s := range progress.Next(life) {
				printStep(out, s)
				if s.Name == stages.Running && s.State.Over() {
					return true
				}
			}
		}
	}
}

func printStep(out io.Writer, s stages.Step) {
	switch s.State {
	case stages.Failed:
		fmt.Fprintf(out, "  ✗ %-28s %9s  %s: %s\n", s.Name.Doing(), millis(s.Duration()), s.Code, s.Error)
	case stages.Skipped:
		fmt.Fprintf(out, "  - %-28s %9s  %s\n", s.Label, "", s.Note)
	default:
		note := s.Note
		if s.Attempts > 1 {
			note = strings.TrimSpace(fmt.Sprintf("after %d tries %s", s.Attempts, note))
		}
		fmt.Fprintf(out, "  ✓ %-28s %9s  %s\n", s.Label, millis(s.Duration()), note)
	}
}

func millis(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// indent sets lines off from the progress.
type indent struct{ w io.Writer }

func (i indent) Write(b []byte) (int, error) {
	_, err := i.w.Write(append([]byte("  "), b...))
	return len(b), err
}
