package storage

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// migration brings the schema from one version to the next. The list is append-only:
// its length is the version that this program writes.
type migration string

var migrations = []migration{`
CREATE TABLE meta(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
CREATE TABLE resources(id INTEGER PRIMARY KEY, grp TEXT NOT NULL, name TEXT NOT NULL, UNIQUE(grp, name));
-- A plain rowid table on purpose: rows of a few KiB in an index tree spill to overflow pages and halve the speed.
CREATE TABLE objects(
  id   INTEGER PRIMARY KEY,
  res  INTEGER NOT NULL,
  ns   TEXT NOT NULL,
  name TEXT NOT NULL,
  rv   INTEGER NOT NULL,
  enc  INTEGER NOT NULL,
  crc  INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE(res, ns, name));
INSERT INTO meta(k, v) VALUES('rv', 0), ('reserved', 0), ('clean', 1);
`}

// database is one connection. Connections are not safe for concurrent use.
type database struct {
	conn  connection
	stmts map[string]driver.Stmt
}

const busyMillis = 10000 // the other connection only checkpoints

func openDatabase(cfg Config, steps []migration) (*database, error) {
	if cfg.Durability != Memory {
		if fi, err := os.Stat(filepath.Dir(cfg.Path)); err != nil {
			return nil, err
		} else if !fi.IsDir() {
			return nil, fmt.Errorf("%s is not a directory: %w", filepath.Dir(cfg.Path), fs.ErrInvalid)
		}
	}
	db, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return db.recognize(len(steps)) }, // before anything in the file changes
		func() error { return db.configure(cfg) },
		func() error { return db.migrate(steps) },
	} {
		if err := step(); err != nil {
			db.close()
			return nil, explain(err)
		}
	}
	return db, nil
}

// connect opens one more connection to a database that is known to be ours.
func connect(cfg Config) (*database, error) {
	db, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	if err := db.configure(cfg); err != nil {
		db.close()
		return nil, explain(err)
	}
	return db, nil
}

func dial(cfg Config) (*database, error) {
	name := ":memory:"
	if cfg.Durability != Memory {
		name = "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(cfg.Path)
	}
	c, err := openConnection(name)
	if err != nil {
		return nil, explain(err)
	}
	return newDatabase(c), nil
}

func (d *database) configure(cfg Config) error {
	sync := "NORMAL"
	if cfg.Durability == Full {
		sync = "FULL"
	}
	for _, p := range []string{
		fmt.Sprintf("busy_timeout=%d", busyMillis), "page_size=4096", "journal_mode=WAL", "synchronous=" + sync, "wal_autocheckpoint=0",
		"journal_size_limit=67108864", "cache_size=-4000", "temp_store=MEMORY", "mmap_size=0", "foreign_keys=OFF", "trusted_schema=OFF",
	} {
		if err := d.exec("PRAGMA " + p); err != nil {
			return fmt.Errorf("set %s: %w", p, err)
		}
	}
	return nil
}

// connection is what SQLite's driver gives, used without database/sql.
type connection interface {
	driver.Conn
	Exec(sql string, args []driver.Value) (driver.Result, error)
	Query(sql string, args []driver.Value) (driver.Rows, error)
	AutoCommit() bool
}

func newDatabase(c connection) *database {
	return &database{conn: c, stmts: map[string]driver.Stmt{}}
}

// recognize refuses what is not a database of ours, or a newer one.
func (d *database) recognize(want int) error {
	have, err := d.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	switch {
	case have > int64(want):
		return fmt.Errorf("%w: its schema is version %d, this drydock knows up to %d; use the newer drydock or another state directory", ErrNewer, have, want)
	case have == 0:
		if n, err := d.number("SELECT count(*) FROM sqlite_schema"); err != nil {
			return err
		} else if n > 0 {
			return fmt.Errorf("%w: it is an SQLite file, but not one of drydock's", ErrCorrupt)
		}
	}
	return nil
}

func (d *database) migrate(steps []migration) error {
	have, err := d.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	want := int64(len(steps))
	if have == want {
		return nil
	}
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i := have; i < want; i++ {
		if err := d.exec(string(steps[i])); err != nil {
			d.rollback()
			return fmt.Errorf("migrate schema from version %d to %d: %w", i, i+1, err)
		}
	}
	if err := d.exec(fmt.Sprintf("PRAGMA user_version=%d", want)); err != nil {
		d.rollback()
		return err
	}
	return d.exec("COMMIT")
}

func (d *database) exec(sql string) error {
	_, err := d.conn.Exec(sql, nil)
	return err
}

// rollback ends a transaction if one is open.
func (d *database) rollback() {
	if !d.conn.AutoCommit() {
		_ = d.exec("ROLLBACK") // an error leaves nothing to do: the next BEGIN will tell
	}
}

// run executes a statement that is prepared once for each connection.
func (d *database) run(sql string, args ...driver.Value) error {
	st, ok := d.stmts[sql]
	if !ok {
		var err error
		if st, err = d.conn.Prepare(sql); err != nil {
			return err
		}
		d.stmts[sql] = st
	}
	//nolint:staticcheck // the raw driver connection has no other call without a context, and a context costs a goroutine
	_, err := st.Exec(args)
	return err
}

// query calls each with every row. The values are valid until it returns.
func (d *database) query(sql string, each func([]driver.Value) error) error {
	rows, err := d.conn.Query(sql, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	vals := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(vals); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(vals); err != nil {
			return err
		}
	}
}

func (d *database) number(sql string) (int64, error) {
	n, found := int64(0), false
	err := d.query(sql, func(v []driver.Value) error {
		n, found = v[0].(int64)
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %s gives no number", ErrCorrupt, sql)
	}
	return n, err
}

func (d *database) close() error {
	for _, st := range d.stmts {
		_ = st.Close() // finalizing reports the statement's last error again
	}
	return d.conn.Close()
}
