package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/cluster"
)

func newBackup(f *flags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database of a cluster's Kubernetes API into a file",
		Long: `Copy the database of a cluster's Kubernetes API into a file, as an etcd snapshot does. The
cluster may run: the copy is of one instant and holds up nobody. It was checked before it
has its name. The cloud's volumes and their data are not in it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if force {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if err := cluster.Backup(l, file); err != nil {
				if errors.Is(err, fs.ErrExist) {
					return fmt.Errorf("%s is there already; --force overwrites it", file)
				}
				return err
			}
			fi, err := os.Stat(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "backed up cluster %s to %s (%d KiB)\n", f.name, args[0], fi.Size()>>10)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite FILE")
	return cmd
}
