//go:build cgo

package fakecloud

import (
	"errors"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func troubleOf(err error) trouble {
	var e sqlite3.Error
	if !errors.As(err, &e) {
		return troubleOther
	}
	switch e.Code {
	case sqlite3.ErrFull:
		return troubleFull
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return troubleBusy
	case sqlite3.ErrNotADB, sqlite3.ErrCorrupt:
		return troubleDamaged
	case sqlite3.ErrCantOpen, sqlite3.ErrPerm, sqlite3.ErrReadonly, sqlite3.ErrAuth:
		return troubleDenied
	}
	return troubleOther
}
