package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

func newStatus(f *flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "status", Short: "Show how a cluster is doing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			r, err := f.find()
			if err != nil {
				return err
			}
			var s cluster.Status
			if err := r.control(cmd.Context(), "/status", &s); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), s)
			}
			printStatus(cmd.OutOrStdout(), s)
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	return cmd
}

func knownFormat(s string) error {
	if s != "" && s != "json" {
		return usageError{fmt.Errorf("output format %q: only json is known", s)}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printStatus(out io.Writer, s cluster.Status) {
	word := map[bool]string{true: "ready", false: "not ready"}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "cluster\t%s (%s), process %d\n", s.Name, word[s.Ready], s.PID)
	fmt.Fprintf(w, "dashboard\t%s/\nstate\t%s\ndevices\t%s: %s\ndriver\t%s\n", s.URL, s.State, s.Devices, s.Reason, s.Driver)
	fmt.Fprintf(w, "volumes\t%d\npods\t%d\n", s.Volumes, s.Pods)
	for _, n := range s.Nodes {
		driver := "driver registered"
		if !n.Driver {
			driver = "driver not registered"
		}
		fmt.Fprintf(w, "node %s\t%s, %s, %d attached\n", n.Name, word[n.Ready], driver, n.Attached)
	}
	var down []string
	for name, up := range s.Parts {
		if !up {
			down = append(down, name)
		}
	}
	if slices.Sort(down); len(down) > 0 {
		fmt.Fprintf(w, "down\t%s\n", strings.Join(down, ", "))
	}
	w.Flush()
}

func newKubeconfig(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of the cluster's kubeconfig", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.find()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), r.layout.Kubeconfig())
			return nil
		},
	}
}

func newEnv(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print exports for kubectl, godo, doctl and CSI tools",
		Long: "Print shell exports that aim other programs at this cluster: eval \"$(drydock env)\".", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.find()
			if err != nil {
				return err
			}
			var s cluster.Status
			if err := r.control(cmd.Context(), "/status", &s); err != nil {
				return err
			}
			token, err := os.ReadFile(r.layout.Token())
			if err != nil {
				return fmt.Errorf("read the cluster's token: %w", err)
			}
			t, out := strings.TrimSpace(string(token)), cmd.OutOrStdout()
			export := func(name, value string) { fmt.Fprintf(out, "export %s=%s\n", name, quote(value)) }
			export("KUBECONFIG", r.layout.Kubeconfig())
			export("DIGITALOCEAN_API_URL", r.url())
			export("DIGITALOCEAN_ACCESS_TOKEN", t)
			export("DIGITALOCEAN_TOKEN", t)
			export("CSI_ENDPOINT", "unix://"+r.layout.ControllerSocket(s.Driver))
			for _, n := range s.Nodes {
				export("CSI_ENDPOINT_"+strings.ToUpper(n.Name), "unix://"+r.layout.NodeSocket(n.Name, s.Driver))
			}
			return nil
		},
	}
}

// quote makes one shell word of s.
func quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/.:_-", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func newDoctor() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Show what this machine can do, and what follows from it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			r := host.Examine()
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, x := range r.Findings {
				mark, means := "ok", ""
				if !x.OK {
					mark, means = "--", x.Means
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, x.Name, x.Detail, means)
			}
			w.Flush()
			mode, reason, err := r.Decide(host.Auto)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\n\"drydock up\" uses --devices %s: %s.\n", mode, reason)
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	return cmd
}

func newCheck(f *flags) *cobra.Command {
	var format string
	var failOnLeak bool
	cmd := &cobra.Command{
		Use: "check", Short: "Compare API, cloud, kernel and files; name each orphan",
		Long: `Compare what the Kubernetes API, the cloud, the kernel (loop devices, mounts) and the
directories of a cluster say about the same volumes. Exit code 1 if anything does not
agree. Of a cluster that does not run, only the kernel is looked at.

What the cloud holds and no Kubernetes object justifies (volumes, snapshots, attachments,
droplets) is listed with its monthly cost at public list price; --fail-on-leak makes that a
failure as well.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			problems, charges, err := f.problems(cmd)
			if err != nil {
				return err
			}
			failed := len(problems) > 0 || failOnLeak && len(charges) > 0
			out := cmd.OutOrStdout()
			if format == "json" {
				problems = append([]check.Problem{}, problems...)
				for _, c := range charges {
					problems = append(problems, check.Problem{Layer: "leak", Subject: c.Kind + " " + c.Name, What: fmt.Sprintf("%s ($%.2f a month)", c.Why, c.Month)})
				}
				if err := printJSON(out, problems); err != nil {
					return err
				}
			} else {
				for _, p := range problems {
					fmt.Fprintln(out, p)
				}
				printAccount(out, charges)
			}
			if failed {
				return exitCode(exitFailed)
			}
			if format == "" && len(charges) == 0 {
				fmt.Fprintln(out, "clean: API, cloud, kernel and files agree")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	cmd.Flags().BoolVar(&failOnLeak, "fail-on-leak", false, "fail if the cloud holds what no Kubernetes object justifies")
	return cmd
}

func (f *flags) problems(cmd *cobra.Command) (problems []check.Problem, charges []check.Charge, err error) {
	l, err := f.layout()
	if err != nil {
		return nil, nil, err
	}
	if pid, err := cluster.Owner(l); err != nil {
		return nil, nil, err
	} else if pid == 0 {
		problems, err = cluster.Leftovers(l)
		return problems, nil, err
	}
	r, err := f.find()
	if err != nil {
		return nil, nil, err
	}
	if err := r.control(cmd.Context(), "/check", &problems); err != nil {
		return nil, nil, err
	}
	charges, err = r.account(cmd.Context())
	return problems, charges, err
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "drydock %s (%s, %s/%s)\n", cluster.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

func newLab() *cobra.Command {
	lab := &cobra.Command{Use: "lab", Short: "Look at the laboratory: where components can be killed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	lab.AddCommand(&cobra.Command{
		Use: "points", Short: "List the places where a component can be killed", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			for _, p := range cluster.Points() {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
		},
	})
	return lab
}
