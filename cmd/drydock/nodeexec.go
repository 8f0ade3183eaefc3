package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/guest"
	"drydock.dev/drydock/internal/host"
)

func newNodeExec(f *flags) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARG...]",
		Short: "Run a program on a node: anybody's CSI driver, for example",
		Long: `Run a program on a node. With real devices it has a mount namespace of its own in the cluster's:
/dev/disk/by-id is the node's, /var/lib/kubelet is the node's kubelet directory (which also lies at
$DRYDOCK_KUBELET_DIR), and what it mounts there is mounted for the node. The droplet's
metadata service answers at http://169.254.169.254 through $HTTP_PROXY. KUBECONFIG and NODE_NAME are set.

With simulated devices there is no namespace: the program runs in this machine's own view, finds the node's
files by the variables, and cannot mount for the node.

The program ends with the node's power and with the cluster. Its exit code is passed on; 125 says that the node
could not be entered, 126 and 127 that the program could not be run or found.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			notice := cmd.ErrOrStderr()
			if quiet {
				notice = io.Discard
			}
			program := args[1:]
			if program[0] == "--" {
				program = program[1:]
			}
			if len(program) == 0 {
				return usageError{errors.New("no command is given after --")}
			}
			return f.runOnNode(cmd.Context(), args[0], program, notice)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "say nothing about simulated devices")
	return cmd
}

func newNodeShell(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "shell NODE", Short: "Open a shell on a node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.runOnNode(cmd.Context(), args[0], []string{shell()}, cmd.ErrOrStderr())
		},
	}
}

func shell() string {
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	if runtime.GOOS == "windows" {
		return "cmd.exe"
	}
	return "/bin/sh"
}

// runOnNode runs a program on a node for as long as the node lets it stay.
func (f *flags) runOnNode(ctx context.Context, node string, argv []string, notice io.Writer) error {
	r, err := f.find()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // signals are the program's
	defer cancel()
	resp, err := r.askLab(ctx, http.MethodPost, "/nodes/"+url.PathEscape(node)+"/guests?what="+url.QueryEscape(argv[0]))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answers := json.NewDecoder(resp.Body)
	var g cluster.Guest
	if err := answers.Decode(&g); err != nil {
		return fmt.Errorf("enter node %s: %w", node, err)
	}
	if g.Devices == string(host.Sim) {
		fmt.Fprintf(notice, "drydock: devices are simulated: %s runs in this machine's own view. The node's files are at $DRYDOCK_KUBELET_DIR and\n"+
			"drydock: $DRYDOCK_DEVICE_DIR, sockets there reach the node's kubelet, metadata answers through $HTTP_PROXY; mounts are not the node's.\n", argv[0])
	}
	dir, _ := os.Getwd()
	running, end := context.WithCancel(ctx)
	defer end()
	var why atomic.Pointer[string]
	go func() {
		var last cluster.Guest
		if err := answers.Decode(&last); err != nil {
			last.Over = "the cluster ended"
		}
		if running.Err() == nil {
			why.Store(&last.Over)
		}
		end()
	}()
	code, err := guest.Run(running, guest.Spec{
		Node: node, Process: g.Process, Kubelet: g.Kubelet, Links: g.Links, Scratch: g.Scratch, Env: g.Env, Dir: dir,
	}, argv)
	if s := why.Load(); s != nil && err == nil && code != 0 {
		err = errors.New(*s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drydock:", err)
	}
	if code == 0 && err == nil {
		return nil
	}
	return exitCode(code)
}
