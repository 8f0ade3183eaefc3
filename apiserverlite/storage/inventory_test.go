package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestEveryByteCounts changes single bytes anywhere in a database that was closed cleanly, and most of all in the heads of its
// pages: it is loaded whole or not at all.
func TestEveryByteCounts(t *testing.T) {
	path, bad := tempPath(t), tempPath(t)
	s := mustOpen(t, Config{Path: path})
	for i := range 100 {
		put(t, s, "x", fmt.Sprint("o", i), strings.Repeat("v", 10+i*7%900), 0)
	}
	if err := s.SetMeta(t.Context(), "key", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(at int) {
		t.Helper()
		b := slices.Clone(good)
		b[at] ^= byte(1 + rand.IntN(255))
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("byte %d, %x -> %x: %v", at, good[at], b[at], v)
			}
		}()
		for _, ext := range []string{"-wal", "-shm"} {
			if err := removed(bad + ext); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Path: bad, Scheme: schemeForTests()})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Errorf("byte %d, %x -> %x: %v", at, good[at], b[at], err)
			}
			return
		}
		defer s.Close()
		kept, _ := s.Meta("key")
		if n := s.Snapshot(configmaps).Len(); n != 100 || string(kept) != "secret" {
			t.Errorf("byte %d, %x -> %x: loaded %d of 100 objects and the key %q", at, good[at], b[at], n, kept)
		}
	}
	const pageSize = 4096
	for page := 0; page < len(good); page += pageSize {
		for head := 3; head < 9; head++ { // how many rows, and where they begin
			try(page + head)
		}
		for range 12 {
			try(page + rand.IntN(pageSize))
		}
	}
}

// TestInventoryOfAnOlderProgram: one that knows no inventory leaves that of an earlier end behind.
func TestInventoryOfAnOlderProgram(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	put(t, s, "x", "a", "1", 0)
	put(t, s, "x", "b", "1", 0)
	s.Close()
	db, err := connect(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"DELETE FROM objects WHERE name = 'b'", "UPDATE meta SET v = v + 1 WHERE k = 'rv'"} {
		if err := db.exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	db.close()
	if n := mustOpen(t, Config{Path: path}).Snapshot(configmaps).Len(); n != 1 {
		t.Fatalf("%d objects", n)
	}
}

// TestInventoryOfABusyEnd: what is kept while the store closes is in the inventory, or was refused.
func TestInventoryOfABusyEnd(t *testing.T) {
	path := tempPath(t)
	for round := range 30 {
		s := mustOpen(t, Config{Path: path})
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				for n := 0; errs[i] == nil; n++ {
					errs[i] = s.SetMeta(t.Context(), fmt.Sprint(i), fmt.Append(nil, round, n))
				}
			})
		}
		s.Close()
		wg.Wait()
		for _, err := range errs {
			if !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		}
	}
}
