package fakecloud

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newStore(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cloud ?#%.db") // characters that mean something in a URL
	s, err := openStore(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1700000000, 5).UTC()
	err = s.write(change{
		volumes:  []Volume{{ID: "v1", Name: "v", Region: "nyc3", SizeGiB: 1, Droplet: 7, Created: now, Tags: []string{"a"}}},
		droplets: []Droplet{{ID: 7, Name: "n1", Status: DropletActive, Created: now}},
		actions:  []Action{{ID: 9, Type: AttachVolume, Status: InProgress, Started: now, Volume: "v1", Droplet: 7}},
		tags:     []string{"a"},
	})
	if err := errors.Join(err, s.close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func edit(t *testing.T, path, statement string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "edit.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", link)
	if err == nil {
		_, err = db.Exec(statement)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefusedDatabases: what cannot be opened is refused in words, and untouched.
func TestRefusedDatabases(t *testing.T) {
	for _, c := range []struct {
		what, says string
		spoil      func(t *testing.T, path string)
	}{
		{"newer", "schema has version 99 and this program knows versions up to 3", func(t *testing.T, p string) { edit(t, p, "PRAGMA user_version = 99") }},
		{"foreign", "database of another program", func(t *testing.T, p string) { edit(t, p, "PRAGMA application_id = 5") }},
		{"text", "damaged or is no database", func(t *testing.T, p string) {
			if err := os.WriteFile(p, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"damaged", "damaged", func(t *testing.T, p string) {
			data, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			for i := 4096; i < len(data); i += 3 {
				data[i] ^= 0x5a
			}
			if err := os.WriteFile(p, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"in use", "another process has it open", func(t *testing.T, p string) {
			s, err := openStore(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.write(change{tags: []string{"held"}}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.close() })
		}},
		{"no directory", "no such directory", func(t *testing.T, p string) {
			if err := os.RemoveAll(filepath.Dir(p)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := newStore(t)
			c.spoil(t, path)
			before, _ := os.ReadFile(path)
			s, err := openStore(path)
			if err == nil {
				s.close()
				t.Fatal("it opens")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %q, not %q", err, c.says)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file has changed")
			}
		})
	}
}

func TestReadBack(t *testing.T) {
	s, err := openStore(newStore(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	st, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	v := st.volumes["v1"]
	if v == nil || v.Droplet != 7 || v.Created.UnixNano() != 1700000000000000005 || fmt.Sprint(v.Tags) != "[a]" {
		t.Errorf("volume %+v", v)
	}
	if len(st.onDroplet[7]) != 1 || st.actions[9] == nil || st.tags["a"] != "a" || st.capacityGiB != 1 {
		t.Errorf("state %+v", st)
	}
	// A change that violates a rule of the database changes nothing of it.
	err = s.write(change{tags: []string{"b"}, volumes: []Volume{{ID: "v2", Name: "v", Region: "nyc3"}}})
	if err == nil {
		t.Fatal("two volumes have one name")
	}
	if st, err = s.load(); err != nil || len(st.volumes) != 1 || st.tags["b"] != "" {
		t.Errorf("half a change was written: %+v, %v", st.volumes, err)
	}
	// Ids are not given out twice, even after their bearers are gone.
	if err := s.write(change{droplets: []Droplet{{ID: 500000000}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.write(change{noDroplets: []DropletID{500000000}}); err != nil {
		t.Fatal(err)
	}
	if st, err = s.load(); err != nil || st.lastDroplet != 500000000 {
		t.Errorf("the last droplet is %d, %v", st.lastDroplet, err)
	}
}

func TestPageSpan(t *testing.T) {
	for _, c := range []struct {
		p               Page
		total, from, to int
	}{
		{Page{}, 45, 0, 20}, {Page{Number: 3}, 45, 40, 45}, {Page{Number: 4}, 45, 45, 45}, {Page{Number: 1 << 62}, 45, 45, 45},
		{Page{Size: 500}, 450, 0, 200}, {Page{Number: 3, Size: 15}, 45, 30, 45}, {Page{Number: 4, Size: 15}, 45, 45, 45}, {Page{}, 0, 0, 0},
	} {
		if from, to := c.p.span(c.total); from != c.from || to != c.to {
			t.Errorf("%+v of %d: [%d, %d), want [%d, %d)", c.p, c.total, from, to, c.from, c.to)
		}
	}
}

func TestActionHistory(t *testing.T) {
	st := newState()
	c := &Cloud{state: st, settings: Settings{Limits: Limits{ActionHistory: 10}}}
	for i := range 100 {
		status := Completed
		if i == 3 {
			status = InProgress
		}
		gone := c.forgotten()
		st.apply(change{noActions: gone, actions: []Action{{ID: ActionID(i + 1), Status: status, Volume: VolumeID(fmt.Sprint("v", i%3))}}})
	}
	if len(st.actionIDs) != 10 || len(st.actions) != 10 || st.actions[4] == nil {
		t.Errorf("%d actions are kept: %v", len(st.actions), st.actionIDs)
	}
	n := 0
	for _, ids := range st.ofVolume {
		n += len(ids)
	}
	if n != 10 {
		t.Errorf("the volumes have %d actions", n)
	}
}
