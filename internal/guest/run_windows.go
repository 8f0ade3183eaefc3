package guest

import (
	"os"
	"os/exec"
)

var forwarded = []os.Signal{os.Interrupt}

func fromTerminal(os.Signal) bool { return true }

func kill(cmd *exec.Cmd, _ bool) { cmd.Process.Kill() }

func exitCode(p *os.ProcessState) int { return p.ExitCode() }
