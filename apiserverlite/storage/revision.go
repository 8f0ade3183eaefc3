package storage

import "fmt"

// A commit at durability Normal is not forced to disk, so that a loss of power may take
// the last ones away, and the counter would hand out their revisions a second time. The
// table meta therefore holds a revision "reserved" that is always far ahead of what
// was handed out, and is itself forced to disk before the counter comes near it. A start
// that follows an unclean end goes on from there; a clean end needs no jump.
const (
	reserveAhead  = 1_000_000
	reserveMargin = 100_000
)

// reserveAtStart returns the revision to go on from.
func reserveAtStart(db *database, loaded Revision) (Revision, error) {
	clean, err := db.number("SELECT v FROM meta WHERE k = 'clean'")
	if err != nil {
		return 0, explain(err)
	}
	reserved, err := db.number("SELECT v FROM meta WHERE k = 'reserved'")
	if err != nil {
		return 0, explain(err)
	}
	start := loaded
	if clean == 0 {
		start = max(start, Revision(reserved))
	}
	return start, reserve(db, start+reserveAhead)
}

// reserve commits the mark and forces it, with everything before it, to disk.
func reserve(db *database, mark Revision) error {
	was, err := db.number("PRAGMA synchronous")
	if err != nil {
		return explain(err)
	}
	if err := db.exec("PRAGMA synchronous=FULL"); err != nil {
		return explain(err)
	}
	err = func() error {
		if err := db.exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		defer db.rollback()
		if err := db.run("UPDATE meta SET v = ? WHERE k = 'reserved'", int64(mark)); err != nil {
			return err
		}
		if err := db.run("UPDATE meta SET v = 0 WHERE k = 'clean'"); err != nil {
			return err
		}
		return db.exec("COMMIT")
	}()
	if rerr := db.exec(fmt.Sprintf("PRAGMA synchronous=%d", was)); err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("reserve revisions up to %d: %w", mark, explain(err))
	}
	return nil
}

// markClean records an end after which the counter can go on without a jump, and what there is.
func markClean(db *database, last Revision, there inventory) error {
	if err := db.exec("BEGIN IMMEDIATE"); err != nil {
		return explain(err)
	}
	defer db.rollback()
	if err := db.run("UPDATE meta SET v = ? WHERE k = 'rv'", int64(last)); err != nil {
		return explain(err)
	}
	if err := db.run(sqlMeta, metaInventory, there.String()); err != nil {
		return explain(err)
	}
	if err := db.run("UPDATE meta SET v = 1 WHERE k = 'clean'"); err != nil {
		return explain(err)
	}
	return explain(db.exec("COMMIT"))
}
