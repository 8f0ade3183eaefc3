//go:build unix

package guest

import (
	"os"
	"os/exec"
	"syscall"
)

var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// fromTerminal tells of a signal that a terminal sends to its whole foreground group.
func fromTerminal(s os.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// kill ends the program, and its process group where it has one of its own.
func kill(cmd *exec.Cmd, terminal bool) {
	if !terminal {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Process.Kill()
}

func exitCode(p *os.ProcessState) int {
	if w, ok := p.Sys().(syscall.WaitStatus); ok {
		return statusCode(w)
	}
	return p.ExitCode()
}

func statusCode(w syscall.WaitStatus) int {
	if w.Signaled() {
		return exitSignalled + int(w.Signal())
	}
	return w.ExitStatus()
}
