//go:build cgo

package storage

import (
	"errors"
	"fmt"
	"strings"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func openConnection(name string) (connection, error) {
	c, err := (&sqlite3.SQLiteDriver{}).Open(name)
	if err != nil {
		return nil, err
	}
	return c.(*sqlite3.SQLiteConn), nil
}

// copyInto copies all of one database over another, as it is at one instant.
func copyInto(dst, src connection) error {
	b, err := dst.(*sqlite3.SQLiteConn).Backup("main", src.(*sqlite3.SQLiteConn), "main")
	if err != nil {
		return err
	}
	whole, err := b.Step(-1)
	if ferr := b.Finish(); err == nil {
		err = ferr
	}
	if err == nil && !whole { // the only end that is none, and no error to the library
		err = sqlite3.Error{Code: sqlite3.ErrBusy}
	}
	return err
}

func diskFull(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrFull
}

// explain adds the kind and plain words to SQLite's own errors.
func explain(err error) error {
	var e sqlite3.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case sqlite3.ErrError: // our statements are sound, so the schema is not
		if strings.HasPrefix(e.Error(), "no such ") {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrFormat:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case sqlite3.ErrFull:
		return fmt.Errorf("%w: the disk is full: %w", ErrUnavailable, err)
	case sqlite3.ErrIoErr:
		return fmt.Errorf("%w: the disk failed: %w", ErrUnavailable, err)
	case sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrCantOpen:
		return fmt.Errorf("%w: the file cannot be written: %w", ErrUnavailable, err)
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return fmt.Errorf("%w: another process holds the file: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
