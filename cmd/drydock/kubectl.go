package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newKubectl(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ...", Short: "Run the kubectl on PATH, aimed at this cluster",
		DisableFlagParsing: true, // all but our own, which come first, are kubectl's
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := takeFlags(cmd.InheritedFlags(), args)
			if err != nil {
				return err
			}
			if err := fromEnvironment(cmd.InheritedFlags()); err != nil {
				return err
			}
			r, err := f.find()
			if err != nil {
				return err
			}
			path, err := exec.LookPath("kubectl")
			if err != nil {
				return errors.New("there is no kubectl on PATH; install it, or use \"drydock apply\", \"drydock get\" and \"drydock delete\"")
			}
			c := exec.CommandContext(cmd.Context(), path, args...)
			c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
			c.Env = append(os.Environ(), "KUBECONFIG="+r.layout.Kubeconfig())
			c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
			err = c.Run()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return exitCode(exit.ExitCode())
			}
			return err
		},
	}
}

// takeFlags sets the flags of the set that args begin with, and returns the other arguments.
func takeFlags(set *pflag.FlagSet, args []string) ([]string, error) {
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		name, long := strings.CutPrefix(name, "--")
		if !long || set.Lookup(name) == nil {
			break
		}
		if args = args[1:]; !given {
			if len(args) == 0 {
				return nil, usageError{fmt.Errorf("flag needs an argument: --%s", name)}
			}
			value, args = args[0], args[1:]
		}
		if err := set.Set(name, value); err != nil {
			return nil, usageError{err}
		}
	}
	return args, nil
}
