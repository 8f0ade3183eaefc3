//go:build !cgo

package fakecloud

import _ "github.com/mattn/go-sqlite3" // says on first use that it needs cgo

func troubleOf(error) trouble { return troubleOther }
