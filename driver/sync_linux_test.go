package driver

import (
	"os"

	"golang.org/x/sys/unix"
)

// sync1 writes the filesystem that f lies on to its device.
func sync1(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
