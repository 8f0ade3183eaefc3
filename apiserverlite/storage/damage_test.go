package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// copyFiles saves the database as a loss of power at this instant might leave it.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	for _, ext := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + ext)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+ext, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRevisionsDoNotRepeatAfterPowerLoss(t *testing.T) {
	path, old := tempPath(t), tempPath(t)
	s := mustOpen(t, Config{Path: path})
	before := put(t, s, "x", "a", "1", 0)
	copyFiles(t, path, old)
	var last Revision
	for i := range 50 {
		last = put(t, s, "x", fmt.Sprint("lost", i), "1", 0).Revision
	}
	s.Close()
	s = mustOpen(t, Config{Path: old})
	if next := put(t, s, "x", "b", "1", 0).Revision; next <= last {
		t.Fatalf("revision %d was used before the loss, up to %d", next, last)
	}
	// What a client saw last before the loss is either known to be complete, or expired.
	w, err := s.Watch(configmaps, before.Revision, WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if evs, _ := w.Take(); len(evs) != 1 || evs[0].Entry.Key.Name != "b" {
		t.Fatalf("events after the surviving revision: %v", evs)
	}
	if _, err := s.Watch(configmaps, last, WatchOptions{}); !errors.Is(err, ErrExpired) {
		t.Fatalf("watch from a lost revision: %v", err)
	}
}

func TestReserveMovesAhead(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	first := put(t, s, "x", "a", "1", 0)
	s.writer.last = s.writer.reserved - 1 // nobody writes now; the next request passes it through the queue
	second := put(t, s, "x", "a", "2", first.Revision)
	s.abandon()
	s = mustOpen(t, Config{Path: path})
	if s.Revision() < second.Revision+reserveAhead/2 {
		t.Fatalf("starts at %d after %d", s.Revision(), second.Revision)
	}
}

func refuses(t *testing.T, path string, kind error, words string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Path: path})
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), path) {
		t.Fatalf("refused with: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Fatal("refusing it changed it")
	}
}

func TestRefusesNewer(t *testing.T) {
	path := tempPath(t)
	s, err := open(Config{Path: path, Clock: clocktesting.NewFakeClock(epoch), Scheme: schemeForTests(), RingEvents: 1, RingBytes: 1}, append(append([]migration(nil), migrations...), "CREATE TABLE future(x)"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	refuses(t, path, ErrNewer, "use the newer drydock")
}

func TestMigratesOlder(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	a := put(t, s, "x", "a", "1", 0)
	s.Close()
	s, err := open(Config{Path: path, Clock: clocktesting.NewFakeClock(epoch), Scheme: schemeForTests(), RingEvents: 1, RingBytes: 1}, append(append([]migration(nil), migrations...), "ALTER TABLE objects ADD COLUMN note TEXT"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if e, ok := s.Get(key("x", "a")); !ok || e.Revision != a.Revision {
		t.Fatalf("after the migration: %v", e)
	}
	if n, err := s.writer.db.number("PRAGMA user_version"); err != nil || n != int64(len(migrations)+1) {
		t.Fatalf("version %d: %v", n, err)
	}
}

func TestRefusesOtherFiles(t *testing.T) {
	path := tempPath(t)
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, path, ErrCorrupt, "not a database")
	path = tempPath(t)
	db, err := dial(Config{Path: path}) // as SQLite makes files by itself
	if err != nil {
		t.Fatal(err)
	}
	if err := db.exec("CREATE TABLE t(x)"); err != nil {
		t.Fatal(err)
	}
	db.close()
	refuses(t, path, ErrCorrupt, "not one of drydock's")
	if _, err := Open(Config{Path: "/nonexistent/dir/cluster.db"}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing directory: %v", err)
	}
}

// TestFindsDamage changes single bytes of a row, of which many still decode.
func TestFindsDamage(t *testing.T) {
	for _, sql := range []string{
		"UPDATE objects SET data = CAST(replace(CAST(data AS TEXT), 'good', 'evil') AS BLOB)",
		"UPDATE objects SET rv = rv - 1",
		"UPDATE objects SET name = name || '2'",
		"UPDATE objects SET enc = 7",
		"UPDATE objects SET data = x'6b3873000a'",
		"UPDATE objects SET res = 99",
		"UPDATE meta SET v = 0 WHERE k = 'rv'",
		"DELETE FROM meta WHERE k = 'rv'",
		"DELETE FROM objects WHERE name = 'b'",
		"UPDATE resources SET name = 'configmats'",
		"UPDATE resources SET name = x'01'",
		"ALTER TABLE objects RENAME COLUMN rv TO rw",
	} {
		t.Run(sql, func(t *testing.T) {
			path := tempPath(t)
			s := mustOpen(t, Config{Path: path})
			put(t, s, "x", "a", "good", 0)
			put(t, s, "x", "b", "fine", 0)
			s.Close()
			db, err := connect(Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.exec(sql); err != nil {
				t.Fatal(err)
			}
			if err := db.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
				t.Fatal(err)
			}
			db.close()
			refuses(t, path, ErrCorrupt, "damaged")
		})
	}
}

func TestFullDisk(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	a := put(t, s, "x", "a", "1", 0)
	limit := func(pages int) { // the writer is idle: nobody else uses its connection
		t.Helper()
		if err := s.writer.db.exec(fmt.Sprintf("PRAGMA max_page_count=%d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	_, w, err := s.WatchNow(configmaps, WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	limit(1)
	before := s.Revision()
	big := strings.Repeat("x", 100<<10)
	_, err = s.Write(context.Background(), Op{Key: key("x", "big"), Object: configMap("x", "big", big)})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("write to a full disk: %v", err)
	}
	if err := s.Healthy(); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("health: %v", err)
	}
	if _, ok := s.Get(key("x", "big")); ok || s.Revision() != before {
		t.Fatal("a failed write is visible")
	}
	if evs, _ := w.Take(); len(evs) != 0 {
		t.Fatal("a failed write was published")
	}
	limit(1 << 20)
	b := put(t, s, "x", "a", "2", a.Revision)
	if err := s.Healthy(); err != nil {
		t.Fatalf("health after recovery: %v", err)
	}
	if b.Revision <= a.Revision+1 {
		t.Fatalf("revision %d may have been used by the failed write", b.Revision)
	}
	s.Close()
	s = mustOpen(t, Config{Path: path})
	if e, ok := s.Get(key("x", "a")); !ok || e.Object.(*corev1.ConfigMap).Data["v"] != "2" {
		t.Fatal("lost the write after recovery")
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t)})
	a := put(t, s, "x", "a", "1", 0)
	if err := s.writer.db.exec("PRAGMA query_only=1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(context.Background(), Op{Key: key("x", "a"), Object: configMap("x", "a", "2"), Expect: a.Revision}); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("write to a read-only connection: %v", err)
	}
	put(t, s, "x", "a", "2", a.Revision)
}

// TestIdleCostsNothing looks for timers: there is one only after a write, and not after its checkpoint.
func TestIdleCostsNothing(t *testing.T) {
	c := clocktesting.NewFakeClock(epoch)
	s := mustOpen(t, Config{Path: tempPath(t), Clock: c})
	if c.HasWaiters() {
		t.Fatal("an idle store has a timer")
	}
	put(t, s, "x", "a", "1", 0)
	waitFor(t, func() bool { return c.HasWaiters() })
	c.Step(checkpointDelay)
	waitFor(t, func() bool { return !c.HasWaiters() })
	waitFor(t, func() bool { return s.check.done.Load() == 1 })
	if c.HasWaiters() {
		t.Fatal("a store that has come to rest has a timer")
	}
}
