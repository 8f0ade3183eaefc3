package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// labWait bounds how long a command waits until an object is in force or gone.
const labWait = 30 * time.Second

// laboratory is a client of the running cluster's laboratory.
func (f *flags) laboratory() (*v1alpha1.Client, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return v1alpha1.NewClient(r.rest)
}

// labFormat is how objects are printed for programs; empty is for people.
func labFormat(s string) error {
	switch s {
	case "", "json", "yaml":
		return nil
	}
	return usageError{fmt.Errorf("output format %q: json and yaml are known", s)}
}

// printObject prints an object as JSON or YAML.
func printObject(out io.Writer, format string, v any) error {
	if format == "json" {
		return printJSON(out, v)
	}
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

func (f *flags) addFault(cmd *cobra.Command, name string, o *faultFlags) error {
	if err := labFormat(o.output); err != nil {
		return err
	}
	want, err := o.fault(name)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.dryRun {
		if o.output == "" {
			o.output = "yaml"
		}
		return printObject(out, o.output, map[string]any{
			"apiVersion": want.APIVersion, "kind": want.Kind, "metadata": map[string]any{"name": want.Name}, "spec": want.Spec})
	}
	c, err := f.laboratory()
	if err != nil {
		return err
	}
	if _, err := c.Faults.Create(cmd.Context(), want, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("fault %s exists; remove it first (drydock fault remove %s), or choose another name", name, name)
	} else if err != nil {
		return err
	}
	got, err := awaitFault(cmd.Context(), c, name, labWait, func(now *v1alpha1.Fault) bool {
		return now != nil && now.Status.ObservedGeneration >= now.Generation
	})
	if err != nil {
		return err
	}
	if in := v1alpha1.Condition(got.Status.Conditions, v1alpha1.InForce); got.Status.Phase == v1alpha1.Refused {
		return errors.Join(fmt.Errorf("fault %s is refused: %s", name, in.Message), c.Faults.Delete(cmd.Context(), name, metav1.DeleteOptions{}))
	}
	if o.output != "" {
		return printObject(out, o.output, named(got))
	}
	fmt.Fprintf(out, "fault %s is in force: %s\n", name, sayFault(got))
	fmt.Fprintf(out, "  remove it   drydock fault remove%s %s   (kubectl delete fault %s)\n", f.suffix(), name, name)
	return nil
}

// named fills in what a typed client leaves out.
func named(f *v1alpha1.Fault) *v1alpha1.Fault {
	f.APIVersion, f.Kind, f.ManagedFields = v1alpha1.GroupVersion.String(), "Fault", nil
	return f
}

// awaitFault waits until done says so of a fault; nil stands for its absence.
func awaitFault(ctx context.Context, c *v1alpha1.Client, name string, limit time.Duration, done func(*v1alpha1.Fault) bool) (*v1alpha1.Fault, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	o := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	for {
		o.ResourceVersion = ""
		list, err := c.Faults.List(ctx, o)
		if err != nil {
			return nil, err
		}
		var now *v1alpha1.Fault
		if len(list.Items) > 0 {
			now = &list.Items[0]
		}
		if done(now) {
			return now, nil
		}
		o.ResourceVersion = list.ResourceVersion
		w, err := c.Faults.Watch(ctx, o)
		if err != nil {
			return nil, err
		}
		<-w.ResultChan()
		w.Stop()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for fault %s: %w; see \"drydock fault describe %s\"", name, context.Cause(ctx), name)
		}
	}
}

func newFaultList(f *flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the faults: how often each has fired, at what last", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := labFormat(format); err != nil {
				return err
			}
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			faults, err := c.Faults.List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			nodes, err := c.NodeFaults.List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if format != "" {
				items := []any{}
				for i := range faults.Items {
					items = append(items, named(&faults.Items[i]))
				}
				for i := range nodes.Items {
					n := &nodes.Items[i]
					n.APIVersion, n.Kind, n.ManagedFields = v1alpha1.GroupVersion.String(), "NodeFault", nil
					items = append(items, n)
				}
				return printObject(out, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
			}
			if len(faults.Items)+len(nodes.Items) == 0 {
				fmt.Fprintln(out, "nothing is broken on purpose")
				return nil
			}
			w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tPHASE\tFIRED\tLAST\tWHAT")
			for i := range faults.Items {
				x := &faults.Items[i]
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", x.Name, x.Status.Phase, x.Status.Fired, sayTime(x.Status.LastFired), sayFault(x))
			}
			for _, n := range nodes.Items {
				fmt.Fprintf(w, "%s\t%s\t\t\tnode %s: %s\n", n.Name, n.Status.Phase, n.Spec.Node, n.Spec.Action)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml for programs")
	return cmd
}

func newFaultDescribe(f *flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "describe NAME", Short: "Show all of a fault", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := labFormat(format); err != nil {
				return err
			}
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			x, err := getFault(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if format != "" {
				return printObject(cmd.OutOrStdout(), format, named(x))
			}
			describeFault(cmd.OutOrStdout(), x)
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml for programs")
	return cmd
}

// getFault finds a fault, or says which there are.
func getFault(ctx context.Context, c *v1alpha1.Client, name string) (*v1alpha1.Fault, error) {
	x, err := c.Faults.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return x, err
	}
	list, e := c.Faults.List(ctx, metav1.ListOptions{})
	if e != nil {
		return nil, err
	}
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no fault %q; there is none at all", name)
	}
	return nil, fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(names, ", "))
}

func describeFault(out io.Writer, f *v1alpha1.Fault) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	m, s := f.Spec.Match, f.Status
	line("fault", f.Name)
	line("what", sayFault(f))
	line("phase", string(s.Phase))
	if in := v1alpha1.Condition(s.Conditions, v1alpha1.InForce); in.Status != metav1.ConditionTrue {
		line("not in force", in.Reason+": "+in.Message)
	}
	line("call", strings.TrimSpace(string(m.Call)+" "+m.Op))
	line("component", m.Component)
	line("node", m.Node)
	line("volume", m.Volume)
	line("namespace", m.Namespace)
	line("object", m.Name)
	line("message", f.Spec.Message)
	line("fired", fmt.Sprintf("%d of %d calls that matched", s.Fired, s.Seen))
	if s.Held > 0 {
		line("holds", fmt.Sprintf("%d calls; \"drydock fault release %s\" lets them go", s.Held, f.Name))
	}
	line("first", sayTime(s.FirstFired))
	line("last", sayTime(s.LastFired))
	line("last call", s.LastCall)
	line("killed", strings.Join(s.Killed, ", "))
	w.Flush()
}

func sayTime(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(time.TimeOnly)
}

// sayFault says in words what a fault does to which calls.
func sayFault(f *v1alpha1.Fault) string {
	s, m := f.Spec, f.Spec.Match
	var b strings.Builder
	b.WriteString(string(s.Action))
	if s.Code != "" {
		b.WriteString(" with " + s.Code)
	}
	if s.Delay != nil {
		b.WriteString(" by " + s.Delay.Duration.String())
	}
	op := m.Op
	if op == "" {
		op = "everything"
	}
	if s.Action == lab.Cut {
		op = "the network"
	}
	b.WriteString(", " + string(m.Call) + " " + op)
	for _, x := range []struct{ word, value string }{{"by", m.Component}, {"on", m.Node}, {"volume", m.Volume}, {"namespace", m.Namespace}, {"object", m.Name}} {
		if x.value != "" {
			b.WriteString(" " + x.word + " " + x.value)
		}
	}
	if s.Skip > 0 {
		fmt.Fprintf(&b, ", after %d", s.Skip)
	}
	if s.Times > 0 {
		fmt.Fprintf(&b, ", %d times", s.Times)
	}
	if s.Percent > 0 {
		fmt.Fprintf(&b, ", %d%% of them", s.Percent)
	}
	return b.String()
}
