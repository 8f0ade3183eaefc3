//go:build !linux

package driver

import (
	"errors"
	"os"
)

func newKernelMachine(ops) (machine, error) {
	return nil, errors.New("start driver: real devices need Linux; use simulated ones")
}

// firstExtent cannot tell holes of a file from data here.
func firstExtent(*os.File) (int64, bool, error) { return 0, false, nil }
