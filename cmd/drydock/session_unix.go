//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownSession keeps the terminal's signals away from the process.
func ownSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
