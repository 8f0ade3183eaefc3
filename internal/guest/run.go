package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"

	"golang.org/x/term"
)

// Run runs a program on a node with the caller's standard streams and returns its exit
// code. It has an error only if the program was not started. When ctx ends, the program
// and all that it started are killed.
//
// Signals that this process gets meanwhile are the program's, except those that a terminal
// sends to both.
func Run(ctx context.Context, s Spec, argv []string) (int, error) {
	if len(argv) == 0 {
		return ExitNotEntered, errors.New("run on node " + s.Node + ": no program is named")
	}
	// The kernel counts the parent's death by the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := s.command(argv)
	if err != nil {
		return ExitNotEntered, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	s.isolate(cmd, terminal)
	signals := make(chan os.Signal, 8)
	signal.Reset(forwarded...)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		code := ExitNotRunnable
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			code = ExitNotFound
		}
		return code, fmt.Errorf("run %s on node %s: %w", argv[0], s.Node, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	over := ctx.Done()
	for {
		select {
		case sig := <-signals:
			if !terminal || !fromTerminal(sig) {
				cmd.Process.Signal(sig)
			}
		case <-over:
			over = nil
			kill(cmd, terminal)
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return ExitNotEntered, fmt.Errorf("wait for %s on node %s: %w", argv[0], s.Node, err)
			}
			return exitCode(cmd.ProcessState), nil
		}
	}
}

// command is the program itself, or this one on its way into the node.
func (s Spec) command(argv []string) (*exec.Cmd, error) {
	if s.Process == 0 {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = s.environment()
		return cmd, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program file: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, argv...)
	cmd.Args[0] = "drydock node " + s.Node
	cmd.Env = append(s.environment(), marker+"="+string(text))
	return cmd, nil
}
