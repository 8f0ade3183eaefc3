package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

func newClock(f *flags) *cobra.Command {
	var format string
	show := func(cmd *cobra.Command, _ []string) error {
		if err := labFormat(format); err != nil {
			return err
		}
		c, err := f.laboratory()
		if err != nil {
			return err
		}
		k, err := c.Clocks.Get(cmd.Context(), v1alpha1.ClockName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return showClock(cmd.OutOrStdout(), format, k)
	}
	cmd := &cobra.Command{
		Use: "clock", Short: "Show the cluster's time, or let time pass",
		Long: `Show the cluster's time, or let time pass: every timer that would be due by then fires at
once. The clock never goes back, and stays ahead after a restart.

  drydock clock                      how far it is ahead of this machine's
  drydock clock advance 6m           e.g. the time after which a volume is detached by force

With kubectl: kubectl get clock cluster, kubectl patch clock cluster --type merge -p '{"spec":{"offset":"6m"}}'
(the offset is the sum of all advances). The sidecars' own back-off and the programs of
others keep this machine's time.`,
		Args: cobra.NoArgs, RunE: show,
	}
	shown := &cobra.Command{Use: "show", Short: "Show the cluster's time", Args: cobra.NoArgs, RunE: show}
	advance := &cobra.Command{
		Use: "advance DURATION", Short: "Let time pass: 6m, 1h30m", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := labFormat(format); err != nil {
				return err
			}
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return usageError{fmt.Errorf("duration %q: write it as 90s, 6m or 1h30m", args[0])}
			}
			if d <= 0 {
				return usageError{fmt.Errorf("duration %s: a clock never goes back", d)}
			}
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			k, err := advanceClock(cmd.Context(), c, d)
			if err != nil {
				return err
			}
			return showClock(cmd.OutOrStdout(), format, k)
		},
	}
	for _, x := range []*cobra.Command{cmd, shown, advance} {
		x.Flags().StringVarP(&format, "output", "o", "", "json or yaml for programs")
	}
	cmd.AddCommand(shown, advance)
	return cmd
}

// advanceClock raises the clock's offset and waits until the clock is there.
func advanceClock(ctx context.Context, c *v1alpha1.Client, d time.Duration) (*v1alpha1.Clock, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, labWait, fmt.Errorf("not within %s", labWait))
	defer cancel()
	var want int64
	for want == 0 {
		k, err := c.Clocks.Get(ctx, v1alpha1.ClockName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		k.Spec.Offset.Duration = max(k.Spec.Offset.Duration, k.Status.Offset.Duration) + d
		got, err := c.Clocks.Update(ctx, k, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			return nil, err
		}
		if err == nil {
			want = got.Generation
		}
	}
	o := metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.ClockName}
	w, err := c.Clocks.Watch(ctx, o) // begins with the clock as it is
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		k, ok := e.Object.(*v1alpha1.Clock)
		if !ok || k.Status.ObservedGeneration < want {
			continue
		}
		if in := v1alpha1.Condition(k.Status.Conditions, v1alpha1.InForce); in.Status != metav1.ConditionTrue {
			return nil, fmt.Errorf("advance the clock: %s", in.Message)
		}
		return k, nil
	}
	return nil, fmt.Errorf("advance the clock: %w", context.Cause(ctx))
}

func showClock(out io.Writer, format string, k *v1alpha1.Clock) error {
	if format != "" {
		k.APIVersion, k.Kind, k.ManagedFields = v1alpha1.GroupVersion.String(), "Clock", nil
		return printObject(out, format, k)
	}
	ahead := k.Status.Offset.Duration
	if ahead == 0 {
		fmt.Fprintf(out, "%s, as this machine's clock\n", time.Now().Format(time.RFC3339))
		return nil
	}
	fmt.Fprintf(out, "%s, %s ahead of this machine's clock\n", time.Now().Add(ahead).Format(time.RFC3339), ahead)
	return nil
}
