package storage

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Backup copies the database at path, which may be in use by a running Store of this or another process,
// into a new file. The copy is of one instant, is whole before it has its name, and was checked. Writers
// go on meanwhile.
func Backup(path, file string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("back up to %s: %w", file, fs.ErrExist)
	}
	part := file + ".part"
	err := copyDatabase(path, part, func(*database) error { return nil })
	if err == nil {
		err = settle(part, file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("back up %s: %w", path, err), removed(part))
	}
	return nil
}

// Restore puts a copy of a backup in place of the database at path, which nobody may have open. It refuses a
// backup that is damaged or newer than this program, and then leaves everything as it is. Revisions go on
// above all that the replaced database has handed out: no client sees one twice.
func Restore(file, path string) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	part := path + ".part"
	err := copyDatabase(file, part, func(db *database) error {
		mark, err := db.number("SELECT v FROM meta WHERE k = 'reserved'")
		if err != nil {
			return err
		}
		mark = max(mark, reservedBy(path))
		if err := db.run("UPDATE meta SET v = ? WHERE k = 'reserved'", mark); err != nil {
			return err
		}
		return db.run("UPDATE meta SET v = 0 WHERE k = 'clean'") // so that the next start goes on from the mark
	})
	if err == nil {
		for _, ext := range []string{"-wal", "-shm"} { // of the replaced one, all in its file by now if it can be read
			if rerr := removed(path + ext); err == nil {
				err = rerr
			}
		}
	}
	if err == nil {
		err = settle(part, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("restore %s: %w", file, err), removed(part))
	}
	return nil
}

// copyDatabase copies with SQLite's backup, in one read transaction, checks the copy and lets finish complete it.
func copyDatabase(from, to string, finish func(*database) error) (err error) {
	if err := removed(to); err != nil {
		return err
	}
	src, err := plainConnection(from, "ro")
	if err != nil {
		return err
	}
	defer src.close()
	dst, err := plainConnection(to, "rwc")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dst.close(); err == nil {
			err = cerr
		}
	}()
	if err := copyInto(dst.conn, src.conn); err != nil {
		return explain(err)
	}
	if err := dst.exec("PRAGMA journal_mode=DELETE"); err != nil { // one file, whole by itself
		return explain(err)
	}
	if err := dst.known(); err != nil {
		return err
	}
	if err := integrity(dst); err != nil {
		return err
	}
	if err := dst.sums(); err != nil {
		return err
	}
	return explain(finish(dst))
}

// sums checks every object against its checksum.
func (d *database) sums() error {
	return explain(d.query("SELECT res, ns, name, rv, enc, crc, data FROM objects", func(v []driver.Value) error {
		s, err := scanObject(v)
		if err != nil {
			return err
		}
		if checksum(s.res, s.namespace, s.name, s.revision, s.row) != s.crc {
			return fmt.Errorf("%w: the checksum of %s does not fit", ErrCorrupt, Path(s.namespace, s.name))
		}
		return nil
	}))
}

// known refuses what is not a database of this program or an older one.
func (d *database) known() error {
	have, err := d.number("PRAGMA user_version")
	if err != nil {
		return explain(err)
	}
	switch want := int64(len(migrations)); {
	case have == 0:
		return fmt.Errorf("%w: it is not a backup of drydock's", ErrCorrupt)
	case have > want:
		return fmt.Errorf("%w: its schema is version %d, this drydock knows up to %d", ErrNewer, have, want)
	}
	return nil
}

// plainConnection opens a file without changing how it is kept.
func plainConnection(path, mode string) (*database, error) {
	name := "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) + "?mode=" + mode
	c, err := openConnection(name)
	if err != nil {
		return nil, explain(err)
	}
	db := newDatabase(c)
	if err := db.exec(fmt.Sprintf("PRAGMA busy_timeout=%d", busyMillis)); err != nil {
		db.close()
		return nil, explain(err)
	}
	return db, nil
}

// reservedBy is how far the database at path has reserved revisions; zero if there is none that can be read.
// Closing the connection also brings what is in the WAL into the file.
func reservedBy(path string) int64 {
	if _, err := os.Stat(path); err != nil {
		return 0
	}
	db, err := plainConnection(path, "rw")
	if err != nil {
		return 0
	}
	defer db.close()
	n, err := db.number("SELECT v FROM meta WHERE k = 'reserved'")
	if err != nil {
		return 0
	}
	return n
}

// settle forces a file to disk and gives it its name.
func settle(part, name string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	_ = dir.Sync() // not every system can; the file itself is safe
	return nil
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
