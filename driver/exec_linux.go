package driver

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runTied runs a tool that ends when this process does, however that ends: a tool left
// behind would hold the device. Keys pressed in the terminal do not reach it.
func runTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel ties a child to the thread that started it
	defer runtime.UnlockOSThread()
	return cmd.Run()
}
