package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/cluster"
)

// downWait is how long a cluster may take to stop in order before down calls it stuck.
const downWait = 10 * time.Second

func newDown(f *flags) *cobra.Command {
	var purge, failOnLeak bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster",
		Long:  "Stop a cluster in order. Its state stays for the next \"drydock up\", unless --purge removes it. Volumes, snapshots,\nattachments and droplets of its cloud that no Kubernetes object justifies are listed with their monthly cost.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			var charges []check.Charge
			if r, err := f.find(); err == nil {
				// The cloud may be down, or the cluster hang: it is stopped all the same.
				if charges, err = r.account(cmd.Context()); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "drydock: what is left in the cloud cannot be said: %v\n", err)
				}
				printAccount(cmd.OutOrStdout(), charges)
			}
			if err := down(cmd, "cluster "+f.name, l, purge); err != nil {
				return err
			}
			if failOnLeak && len(charges) > 0 {
				return errLeak
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&failOnLeak, "fail-on-leak", false, "fail if the cloud holds what no Kubernetes object justifies")
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cluster's state and the data of its volumes")
	return cmd
}

// down stops what runs in a state directory, and removes the directory if it shall. What is its name for people.
func down(cmd *cobra.Command, what string, l cluster.Layout, purge bool) error {
	stopErr := stop(cmd, what, l)
	if stopErr != nil && !(purge && errors.Is(stopErr, errNotRunning)) {
		return stopErr
	}
	if !purge {
		return nil
	}
	if !l.IsState() && stopErr != nil {
		return stopErr
	}
	if err := cluster.Purge(l); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", l.Root)
	return nil
}

func stop(cmd *cobra.Command, what string, l cluster.Layout) error {
	pid, err := cluster.Owner(l)
	if err != nil {
		return err
	}
	if pid == 0 {
		return fmt.Errorf("%s (%s) %w", what, l.Root, errNotRunning)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return fmt.Errorf("stop %s in process %d: %w", what, pid, err)
	}
	// The lock is released by the kernel at the process's very end; there is no event for it.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(downWait)
	defer limit.Stop()
	for {
		now, err := cluster.Owner(l)
		if err != nil {
			return err
		}
		if now != pid {
			fmt.Fprintf(cmd.OutOrStdout(), "stopped %s\n", what)
			return nil
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("%s in process %d did not stop within %s; its state is safe: end it with kill -9 %d", what, pid, downWait, pid)
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
	}
}
