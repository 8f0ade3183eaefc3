//go:build unix && !linux

package guest

import (
	"os/exec"
	"syscall"
)

// isolate gives a program that no terminal drives a process group, so that all of it can be killed.
func (s Spec) isolate(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !terminal}
}
