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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/cluster"
)

func newNode(f *flags) *cobra.Command {
	node := &cobra.Command{
		Use: "node", Short: "Look at nodes, run programs on them, and break them",
		Long: `Look at nodes, run programs on them, and break them.

  drydock node list
  drydock node exec n1 -- ./my-driver --endpoint unix:///var/lib/kubelet/plugins/my/csi.sock
  drydock node stop-kubelet n1; drydock node power-off n1; drydock node partition n1

What lasts is an object of kind NodeFault (kubectl get nodefaults), in force until the
contrary command, its deletion or "drydock node heal": also after a restart of the cluster.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	node.AddCommand(newNodeList(f), newNodeExec(f), newNodeShell(f))
	var delay, by time.Duration
	for _, op := range []struct {
		name  cluster.Operation
		short string
	}{
		{cluster.StopKubelet, "Stop the kubelet in order; the pods' volumes stay mounted"},
		{cluster.KillKubelet, "Kill the kubelet at once, as kill -9 does"},
		{cluster.StartKubelet, "Start the kubelet; it finds what the last one left"},
		{cluster.RestartKubelet, "Stop the kubelet and start it"},
		{cluster.PowerOff, "Take the power away: mounts, devices and unsynced data are lost, files stay"},
		{cluster.PowerOn, "Boot a node that is powered off"},
		{cluster.Reboot, "Power off and on"},
		{cluster.Partition, "Cut the kubelet off from the API server; pods go on"},
		{cluster.Slow, "Make each of the kubelet's API requests slower"},
		{cluster.Skew, "Make the node's clock wrong"},
		{cluster.Heal, "End a partition, slowness and a wrong clock"},
	} {
		cmd := &cobra.Command{
			Use: string(op.name) + " NODE", Short: op.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				amount := delay
				if op.name == cluster.Skew {
					amount = by
				}
				return f.operate(cmd, args[0], op.name, amount)
			},
		}
		if op.name == cluster.Slow {
			cmd.Flags().DurationVar(&delay, "delay", time.Second, "how much longer each request takes")
		}
		if op.name == cluster.Skew {
			cmd.Flags().DurationVar(&by, "by", 0, "by how much: 5m, or -10m for a clock that is late")
		}
		node.AddCommand(cmd)
	}
	return node
}

func (f *flags) operate(cmd *cobra.Command, node string, op cluster.Operation, by time.Duration) error {
	r, err := f.find()
	if err != nil {
		return err
	}
	path := "/nodes/" + url.PathEscape(node) + "/" + string(op)
	if op == cluster.Slow {
		if by <= 0 {
			return usageError{fmt.Errorf("delay %s: it must be positive", by)}
		}
		path += "?delay=" + by.String()
	}
	if op == cluster.Skew {
		if by == 0 {
			return usageError{errors.New("skew needs --by: 5m, or -10m for a clock that is late; \"drydock node heal\" makes it right")}
		}
		path += "?by=" + url.QueryEscape(by.String())
	}
	var s cluster.MachineStatus
	if err := r.lab(cmd.Context(), http.MethodPost, path, &s); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "node %s: power %s, kubelet %s, %s\n", s.Name, s.Power, s.Kubelet, network(s))
	if name := cluster.ObjectOf(node, op); name != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "  the same with kubectl: kubectl get nodefault %s; its deletion mends the node\n", name)
	}
	return nil
}

func network(s cluster.MachineStatus) string {
	out := s.Network
	if s.Delay != "" {
		out += " by " + s.Delay
	}
	if s.Clock != "" {
		out += ", clock wrong by " + s.Clock
	}
	return out
}

func newNodeList(f *flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the nodes: power, kubelet, network, programs that run there", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			r, err := f.find()
			if err != nil {
				return err
			}
			var nodes []cluster.MachineStatus
			if err := r.lab(cmd.Context(), http.MethodGet, "/nodes", &nodes); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), nodes)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NODE\tPOWER\tKUBELET\tNETWORK\tPROGRAMS")
			for _, n := range nodes {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.Power, n.Kubelet, network(n), strings.Join(n.Guests, ", "))
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	return cmd
}

// lab asks the cluster's laboratory something and decodes its answer.
func (r *running) lab(ctx context.Context, method, path string, into any) error {
	resp, err := r.askLab(ctx, method, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// askLab returns an answer that says yes; its body is the caller's to close.
func (r *running) askLab(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url()+"/lab/v1"+path, nil)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(r.layout.Token())
	if err != nil {
		return nil, fmt.Errorf("read the cluster's token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req) // without a proxy: on a node there is one
	if err != nil {
		return nil, fmt.Errorf("ask cluster in process %d: %w", r.pid, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, fmt.Errorf("%s", strings.TrimSpace(string(b)))
	}
	return resp, nil
}
