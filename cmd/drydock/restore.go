package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/cluster"
)

func newRestore(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in place of the database of a cluster's Kubernetes API",
		Long: `Put a backup in place of the database of a cluster's Kubernetes API. The cluster must not run.
A backup that is damaged or of a newer drydock is refused, and nothing is changed. Objects go
back to the instant of the backup, resource versions do not: no client sees one twice. The
cloud's volumes stay as they are; "drydock check" then says what no longer fits.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			if err := cluster.Restore(l, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored cluster %s from %s; start it with \"drydock up%s\"\n", f.name, args[0], f.suffix())
			return nil
		},
	}
}
