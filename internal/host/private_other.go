//go:build !linux

package host

import "errors"

// EnterPrivate is for Linux; elsewhere devices are simulated and need no namespace.
func EnterPrivate() error { return errors.New("mount namespaces exist on Linux only") }
