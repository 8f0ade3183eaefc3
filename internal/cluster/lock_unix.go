//go:build unix

package cluster

import (
	"errors"
	"os"
	"syscall"
)

// hold takes the file for this process alone, until the file is closed.
func hold(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// share takes the file unless somebody holds it.
func share(f *os.File) error { return flock(f, syscall.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
