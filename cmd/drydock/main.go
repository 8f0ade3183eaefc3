// Command drydock runs the storage half of a Kubernetes cluster in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/guest"
)

// The exit codes, which README documents.
const (
	exitOK          = 0
	exitFailed      = 1 // the command could not do its work, or check found problems
	exitUsage       = 2 // the command line is wrong
	exitNotRunning  = 3 // no cluster of that name runs
	exitRunning     = 4 // a cluster of that name runs already
	exitInterrupted = 130
)

func main() {
	guest.Main()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := interruptible()
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "drydock:", err)
	var usage usageError
	var option cluster.OptionError
	switch {
	case errors.As(err, &usage), errors.As(err, &option):
		return exitUsage
	case errors.Is(err, errNotRunning):
		return exitNotRunning
	case errors.Is(err, cluster.ErrRunning):
		return exitRunning
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// interruptible returns a context that the first interrupt ends; the second one ends the process.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-ch; !ok {
			return
		}
		cancel()
		if _, ok := <-ch; ok {
			os.Exit(exitInterrupted)
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		cancel()
	}
}

// exitCode ends the command with that code and no further words.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError marks a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
