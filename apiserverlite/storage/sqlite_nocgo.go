//go:build !cgo

package storage

import "fmt"

// A build without cgo type-checks everywhere and keeps nothing anywhere.

func openConnection(string) (connection, error) {
	return nil, fmt.Errorf("%w: this drydock was built without cgo, so without SQLite; build it with CGO_ENABLED=1 and a C compiler", ErrUnavailable)
}

func copyInto(_, _ connection) error { return ErrUnavailable }

func diskFull(error) bool { return false }

func explain(err error) error { return err }
