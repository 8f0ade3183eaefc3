//go:build !linux

package driver

import "os/exec"

func runTied(cmd *exec.Cmd) error { return cmd.Run() }
