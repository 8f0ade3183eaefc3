package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestBackupWhileWriting backs a store up in the middle of writes that keep two objects equal.
func TestBackupWhileWriting(t *testing.T) {
	path, file := tempPath(t), tempPath(t)
	s := mustOpen(t, Config{Path: path})
	for i := range 500 {
		put(t, s, "x", fmt.Sprint("o", i), strings.Repeat("v", 1000), 0)
	}
	a, b := put(t, s, "x", "a", "0", 0), put(t, s, "x", "b", "0", 0)
	started, enough := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; ; i++ {
			es, err := s.Write(context.Background(), Op{Key: a.Key, Object: configMap("x", "a", fmt.Sprint(i)), Expect: a.Revision}, Op{Key: b.Key, Object: configMap("x", "b", fmt.Sprint(i)), Expect: b.Revision})
			if err != nil {
				t.Error(err)
				return
			}
			a, b = es[0], es[1]
			if i == 10 {
				close(started)
			}
			select {
			case <-enough:
				return
			default:
			}
		}
	})
	<-started
	if err := Backup(path, file); err != nil {
		t.Fatal(err)
	}
	last := put(t, s, "x", "after", "1", 0).Revision
	close(enough)
	wg.Wait()
	if err := Backup(path, file); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a second backup to the same file: %v", err)
	}
	last = max(last, s.Revision())
	s.Close()

	if err := Restore(file, path); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Config{Path: path})
	if n := s.Snapshot(configmaps).Len(); n != 502 {
		t.Fatalf("%d objects after the restore, want 502", n)
	}
	ea, _ := s.Get(a.Key)
	eb, _ := s.Get(b.Key)
	if valueOf(ea) != valueOf(eb) || ea.Revision+1 != eb.Revision {
		t.Fatalf("the backup is torn: %s at %d, %s at %d", valueOf(ea), ea.Revision, valueOf(eb), eb.Revision)
	}
	if next := put(t, s, "x", "new", "1", 0).Revision; next <= last {
		t.Fatalf("revision %d was used before the restore, up to %d", next, last)
	}
}

func TestRestoreRefuses(t *testing.T) {
	path, file := tempPath(t), tempPath(t)
	s := mustOpen(t, Config{Path: path})
	for i := range 200 {
		put(t, s, "x", fmt.Sprint("o", i), strings.Repeat("v", 1000), 0)
	}
	s.Close()
	if err := Backup(path, file); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(name string, want error, change func([]byte) []byte) {
		t.Helper()
		bad := tempPath(t)
		if err := os.WriteFile(bad, change(append([]byte(nil), good...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Restore(bad, path); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path + ".part"); err == nil {
			t.Errorf("%s: a part is left", name)
		}
	}
	spoil("no database", ErrCorrupt, func([]byte) []byte { return []byte("hello, this is no database at all") })
	spoil("cut off", ErrCorrupt, func(b []byte) []byte { return b[:len(b)/2] })
	spoil("pages overwritten", ErrCorrupt, func(b []byte) []byte {
		for i := len(b) / 2; i < len(b)/2+8192; i++ {
			b[i] = 0xff
		}
		return b
	})
	spoil("newer", ErrNewer, func(b []byte) []byte { b[63] = 99; return b }) // the header's user_version
	spoil("of another program", ErrCorrupt, func(b []byte) []byte { b[63] = 0; return b })
	if err := Restore(tempPath(t), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no backup: %v", err)
	}
	s = mustOpen(t, Config{Path: path})
	if n := s.Snapshot(configmaps).Len(); n != 200 {
		t.Errorf("%d objects after refused restores, want 200", n)
	}
	s.Close()
	// A database that cannot be opened any more is what a backup is for.
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(file, path); err != nil {
		t.Fatal(err)
	}
	if n := mustOpen(t, Config{Path: path}).Snapshot(configmaps).Len(); n != 200 {
		t.Errorf("%d objects after the restore, want 200", n)
	}
}

// TestFullForcesEachCommit looks at the setting on every connection that commits, also after a failure.
func TestFullForcesEachCommit(t *testing.T) {
	for d, want := range map[Durability]int64{Normal: 1, Full: 2} {
		s := mustOpen(t, Config{Path: tempPath(t), Durability: d})
		put(t, s, "x", "a", "1", 0)
		s.writer.suspect = true // as after an I/O error: the next write reconnects. The writer waits for work now.
		put(t, s, "x", "b", "1", 0)
		// The writer is idle: its connection can be asked.
		if got, err := s.writer.db.number("PRAGMA synchronous"); err != nil || got != want {
			t.Errorf("durability %q: synchronous is %d, want %d: %v", d, got, want, err)
		}
	}
}

// TestChurnStaysBounded overwrites, deletes and recreates few objects many times.
func TestChurnStaysBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("churn takes seconds")
	}
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	const writers, rounds = 8, 1200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			text := strings.Repeat("v", 4000)
			for i := range rounds {
				name := fmt.Sprint("w", w, "-", i%20)
				e, ok := s.Get(key("x", name))
				op := Op{Key: key("x", name), Object: configMap("x", name, fmt.Sprint(i, text))}
				if ok {
					op.Expect, op.Delete = e.Revision, i%3 == 0
				}
				if _, err := s.Write(context.Background(), op); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	size := func(ext string) int64 {
		fi, err := os.Stat(path + ext)
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	wal, written := size("-wal"), int64(writers*rounds*4096)
	t.Logf("after %d MB written: database %d KB, WAL %d KB", written>>20, size("")>>10, wal>>10)
	if wal > 2*truncateBytes+2*checkpointBytes {
		t.Errorf("the WAL has %d bytes", wal)
	}
	s.Close()
	if n := size(""); n > 4<<20 { // 160 objects of 4 KB
		t.Errorf("the database has %d bytes", n)
	}
	if n := size("-wal"); n != 0 {
		t.Errorf("the WAL has %d bytes after the end", n)
	}
}

func valueOf(e *Entry) string { return e.Object.(*corev1.ConfigMap).Data["v"] }
