//go:build !linux

package scenario

import "errors"

// shutdown needs a mounted filesystem, which there is on Linux only.
func shutdown(string) error { return errors.ErrUnsupported }
