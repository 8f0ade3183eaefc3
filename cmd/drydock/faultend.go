package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

func newFaultWait(f *flags) *cobra.Command {
	var fired int
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait NAME", Short: "Wait until a fault has fired",
		Long: `Wait until a fault has fired, --fired times in all.
With kubectl: kubectl wait --for=jsonpath='{.status.fired}'=1 fault/NAME`, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			if _, err := getFault(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			got, err := awaitFault(cmd.Context(), c, args[0], timeout, func(now *v1alpha1.Fault) bool {
				return now == nil || now.Status.Fired >= fired || now.Status.Phase == v1alpha1.Spent
			})
			switch {
			case err != nil:
				return err
			case got == nil:
				return fmt.Errorf("fault %s was removed meanwhile", args[0])
			case got.Status.Fired < fired:
				return fmt.Errorf("fault %s fires %d times and no more", args[0], got.Status.Fired)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "fault %s has fired %d times, last at %s\n", got.Name, got.Status.Fired, got.Status.LastCall)
			return nil
		},
	}
	cmd.Flags().IntVar(&fired, "fired", 1, "how often")
	cmd.Flags().DurationVar(&timeout, "timeout", labWait, "give up after this long")
	return cmd
}

func newFaultRelease(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "release NAME", Short: "Let go what a fault holds (--pause, --stale); it holds nothing from then on",
		Long: `Let go what a fault holds (--pause, --stale); it holds nothing from then on.
With kubectl: kubectl patch fault NAME --type merge -p '{"spec":{"released":true}}'`, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			x, err := getFault(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if a := x.Spec.Action; a != lab.Pause && a != lab.Stale {
				return fmt.Errorf("fault %s holds nothing that could be released: its action is %s; \"drydock fault remove %s\" ends it", x.Name, a, x.Name)
			}
			got, err := c.Faults.Patch(cmd.Context(), x.Name, types.MergePatchType, []byte(`{"spec":{"released":true}}`), metav1.PatchOptions{})
			if err != nil {
				return err
			}
			_, err = awaitFault(cmd.Context(), c, x.Name, labWait, func(now *v1alpha1.Fault) bool {
				return now == nil || now.Status.ObservedGeneration >= got.Generation
			})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "fault %s has let go what it held\n", x.Name)
			}
			return err
		},
	}
}

func newFaultRemove(f *flags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "remove NAME... | --all", Aliases: []string{"rm", "delete"}, Short: "Take faults out of force and mend what they broke", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{errors.New("name the faults, or say --all")}
			}
			c, err := f.laboratory()
			if err != nil {
				return err
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			if all {
				list, err := c.Faults.List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, x := range list.Items {
					args = append(args, x.Name)
				}
			}
			for _, name := range args {
				if _, err := getFault(ctx, c, name); err != nil {
					return err
				}
			}
			for _, name := range args {
				if err := c.Faults.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				if _, err := awaitFault(ctx, c, name, labWait, func(now *v1alpha1.Fault) bool { return now == nil }); err != nil {
					return err
				}
				fmt.Fprintf(out, "fault %s is out of force\n", name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every fault of calls; \"drydock node heal\" and others mend nodes")
	return cmd
}
