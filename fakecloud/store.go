package fakecloud

import (
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"time"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks our database files in their header.
const applicationID = 0x64727963 // "dryc"

// store is the cloud's database: written on every change, read only at Open.
//
// The file is locked for one process. Commits go to the write-ahead log without
// flushing it to the physical disk, which outlasts kill -9.
type store struct {
	db   *sql.DB
	path string
	stmt map[string]*sql.Stmt
}

// change is what one transaction writes.
type change struct {
	volumes     []Volume
	droplets    []Droplet
	actions     []Action
	snapshots   []Snapshot
	tags        []string
	noVolumes   []VolumeID
	noDroplets  []DropletID
	noActions   []ActionID
	noSnapshots []SnapshotID
	noTags      []string
}

var statements = map[string]string{
	"volume": `INSERT INTO volumes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET
		size_gib = excluded.size_gib, droplet = excluded.droplet, tags = excluded.tags,
		shared = excluded.shared, more = excluded.more, performance = excluded.performance, read_only = excluded.read_only`,
	"droplet":     `INSERT OR REPLACE INTO droplets VALUES (?,?,?,?,?,?,?,?,?)`,
	"action":      `INSERT OR REPLACE INTO actions VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
	"snapshot":    `INSERT INTO snapshots VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET tags = excluded.tags`,
	"tag":         `INSERT OR IGNORE INTO tags VALUES (?)`,
	"no volume":   `DELETE FROM volumes WHERE id = ?`,
	"no droplet":  `DELETE FROM droplets WHERE id = ?`,
	"no action":   `DELETE FROM actions WHERE id = ?`,
	"no snapshot": `DELETE FROM snapshots WHERE id = ?`,
	"no tag":      `DELETE FROM tags WHERE name = ?`,
	"settings":    `INSERT OR REPLACE INTO settings VALUES (1, ?)`,
	"no settings": `DELETE FROM settings`,
}

// openStore opens or makes the database and brings its schema up to date.
func openStore(path string) (_ *store, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open cloud database: %w", err)
	}
	dsn := "file:" + (&url.URL{Path: filepath.ToSlash(abs)}).EscapedPath() +
		"?_locking_mode=EXCLUSIVE&_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=0&_txlock=immediate&_auto_vacuum=none"
	db, err := sql.Open("sqlite3", dsn)
	if err != nil {
		return nil, fmt.Errorf("open cloud database %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	s := &store{db: db, path: path, stmt: map[string]*sql.Stmt{}}
	defer func() {
		if err != nil {
			db.Close()
			err = s.explain(err)
		}
	}()
	if err := s.migrate(); err != nil {
		return nil, err
	}
	for name, text := range statements {
		if s.stmt[name], err = db.Prepare(text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// explain says in words what a person can do about a database that does not open.
func (s *store) explain(err error) error {
	switch troubleOf(err) {
	case troubleBusy:
		return fmt.Errorf("open cloud database %s: another process has it open: %w", s.path, err)
	case troubleDamaged:
		return fmt.Errorf("open cloud database %s: the file is damaged or is no database; move it and the images of its volumes away to start with an empty cloud: %w", s.path, err)
	case troubleDenied:
		return fmt.Errorf("open cloud database %s: no permission to write it or its directory, or no such directory: %w", s.path, err)
	}
	return fmt.Errorf("open cloud database %s: %w", s.path, err)
}

func (s *store) migrate() error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	var version, app, tables int
	for query, into := range map[string]*int{"PRAGMA user_version": &version, "PRAGMA application_id": &app, "SELECT count(*) FROM sqlite_master": &tables} {
		if err := s.db.QueryRow(query).Scan(into); err != nil {
			return err
		}
	}
	if tables > 0 && app != applicationID {
		return errors.New("the file is a database of another program")
	}
	if version > len(files) {
		return fmt.Errorf("its schema has version %d and this program knows versions up to %d: use the newer drydock that wrote it, or another state directory", version, len(files))
	}
	if version > 0 {
		var verdict string
		if err := s.db.QueryRow("PRAGMA quick_check(1)").Scan(&verdict); err != nil {
			return err
		}
		if verdict != "ok" {
			return fmt.Errorf("the file is damaged; move it and the images of its volumes away to start with an empty cloud: %s", verdict)
		}
	}
	for n := version; n < len(files); n++ {
		text, err := migrations.ReadFile(files[n])
		if err != nil {
			return err
		}
		_, err = s.db.Exec(fmt.Sprintf("BEGIN IMMEDIATE; %s\nPRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", text, applicationID, n+1))
		if err != nil {
			return fmt.Errorf("%s: %w", files[n], err)
		}
	}
	return nil
}

// write commits a change, whole or not at all.
func (s *store) write(ch change) error {
	tx, err := s.db.Begin()
	if err != nil {
		return fmt.Errorf("write cloud database: %w", err)
	}
	put := func(name string, args ...any) {
		if err == nil {
			_, err = tx.Stmt(s.stmt[name]).Exec(args...)
		}
	}
	for _, id := range ch.noVolumes {
		put("no volume", string(id))
	}
	for _, id := range ch.noDroplets {
		put("no droplet", int64(id))
	}
	for _, id := range ch.noActions {
		put("no action", int64(id))
	}
	for _, id := range ch.noSnapshots {
		put("no snapshot", string(id))
	}
	for _, name := range ch.noTags {
		put("no tag", name)
	}
	for _, v := range ch.volumes {
		put("volume", string(v.ID), v.Name, v.Region, v.Description, v.SizeGiB, int64(v.Droplet), nanos(v.Created), v.FilesystemType, v.FilesystemLabel, tagsText(v.Tags),
			v.Shared, jsonText(v.More), performanceText(v.Performance), v.ReadOnly)
	}
	for _, d := range ch.droplets {
		put("droplet", int64(d.ID), d.Name, d.Region, d.Size, d.Image, string(d.Status), nanos(d.Created), tagsText(d.Tags), d.UserData)
	}
	for _, a := range ch.actions {
		put("action", int64(a.ID), string(a.Type), string(a.Status), nanos(a.Started), nanos(a.Ended), a.Region, string(a.Volume), int64(a.Droplet), a.SizeGiB, a.Error, a.ReadOnly)
	}
	for _, n := range ch.snapshots {
		put("snapshot", string(n.ID), n.Name, n.Region, string(n.Volume), n.SizeGiB, n.Bytes, nanos(n.Created), tagsText(n.Tags))
	}
	for _, name := range ch.tags {
		put("tag", name)
	}
	if err != nil {
		return fmt.Errorf("write cloud database: %w", errors.Join(err, tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback() // a COMMIT that failed for want of space leaves the transaction open
		return fmt.Errorf("write cloud database: %w", err)
	}
	return nil
}

// keepSettings replaces the settings' patch; nil removes it.
func (s *store) keepSettings(patch map[string]any) (err error) {
	if patch == nil {
		_, err = s.stmt["no settings"].Exec()
	} else {
		_, err = s.stmt["settings"].Exec(jsonText(patch))
	}
	if err != nil {
		return fmt.Errorf("write cloud database: %w", err)
	}
	return nil
}

// loadSettings returns the patch that was kept, or nil.
func (s *store) loadSettings() (patch map[string]any, err error) {
	err = rows(s.db, `SELECT patch FROM settings`, func(r *sql.Rows) error {
		var text string
		if err := r.Scan(&text); err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &patch)
	})
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return patch, nil
}

func (s *store) close() error {
	var errs []error
	for _, st := range s.stmt {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func tagsText(tags []string) string {
	if len(tags) == 0 {
		return "[]"
	}
	return jsonText(tags)
}

func jsonText(v any) string {
	b, _ := json.Marshal(v) // strings, numbers and maps of them always marshal
	return string(b)
}

func performanceText(p Performance) string {
	if p == (Performance{}) {
		return ""
	}
	return jsonText(p)
}
