package storage

import (
	"fmt"
	"maps"
	"runtime"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of one transaction.
const (
	batchRequests = 256
	batchBytes    = 4 << 20
)

// crowdedFor is how many batches after one of several requests wait for others that are ready to run. A
// transaction costs as much as ten of its rows, and a lone client waits for nobody.
const crowdedFor = 8

// writer owns the database connection. Its goroutine takes whatever is queued, commits
// it in one transaction, publishes, and answers. With one client a batch is one write;
// with many, batches grow while the disk is busy.
type writer struct {
	store     *Store
	db        *database
	last      Revision // last one handed out; those of failed commits are not used again
	reserved  Revision
	persisted map[schema.GroupResource]int64 // rows of the table "resources"
	suspect   bool                           // the connection failed in a way that a new one may mend
	crowded   int                            // so many more batches may find company
}

func (w *writer) run() {
	for first := range w.store.queue {
		w.commit(w.gather(first))
	}
}

func (w *writer) gather(first *request) []*request {
	batch := []*request{first}
	size := first.bytes()
	if w.crowded > 0 {
		runtime.Gosched() // who is about to write joins the batch
	}
	defer func() {
		if w.crowded--; len(batch) > 1 {
			w.crowded = crowdedFor
		}
	}()
	for len(batch) < batchRequests && size < batchBytes {
		select {
		case r, ok := <-w.store.queue:
			if !ok {
				return batch
			}
			batch = append(batch, r)
			size += r.bytes()
		default:
			return batch
		}
	}
	return batch
}

func (r *request) bytes() int {
	n := 0
	for i := range r.ops {
		n += len(r.ops[i].row.data)
	}
	return n
}

// batch is what one transaction does.
type batch struct {
	accepted []*request
	rows     map[Key]*pendingOp // only the last state of a key is written
	current  map[Key]*Entry     // what the batch has made so far; nil: deleted
	events   []*Event
	meta     map[string][]byte
}

func (w *writer) commit(reqs []*request) {
	b := &batch{rows: map[Key]*pendingOp{}, current: map[Key]*Entry{}}
	for _, r := range reqs {
		if err := w.accept(b, r); err != nil {
			r.done <- err
		}
	}
	if len(b.accepted) == 0 {
		return
	}
	err := w.store.check.writing(func() error { return w.transact(b) })
	w.store.setHealth(err)
	if err == nil {
		w.store.keep(b.meta)
		w.store.publish(b.events, w.last)
		w.store.check.wrote(len(b.rows), w.bytes(b))
	}
	for _, r := range b.accepted {
		r.done <- err
	}
}

func (w *writer) bytes(b *batch) int {
	n := 0
	for _, op := range b.rows {
		n += len(op.row.data)
	}
	return n
}

// accept checks every op of r against the batch and the published state, and adds them all or none.
func (w *writer) accept(b *batch, r *request) error {
	prev := make([]*Entry, len(r.ops))
	for i := range r.ops {
		op := &r.ops[i]
		cur, touched := b.current[op.Key]
		if !touched {
			cur, _ = w.store.Get(op.Key)
		}
		var have Revision
		if cur != nil {
			have = cur.Revision
		}
		if have != op.Expect || op.Delete && cur == nil {
			return &ConflictError{Key: op.Key, Want: op.Expect, Have: have}
		}
		prev[i] = cur
	}
	for i := range r.ops {
		op := &r.ops[i]
		w.last++
		op.entry.Revision = w.last
		setRevision(op.Object, w.last)
		ev := &Event{Type: Modified, Revision: w.last, Entry: op.entry, Prev: prev[i]}
		switch {
		case op.Delete:
			ev.Type = Deleted
			b.current[op.Key] = nil
		case prev[i] == nil:
			ev.Type = Added
			b.current[op.Key] = op.entry
		default:
			b.current[op.Key] = op.entry
		}
		b.rows[op.Key] = op
		b.events = append(b.events, ev)
	}
	if len(r.meta) > 0 {
		if b.meta == nil {
			b.meta = map[string][]byte{}
		}
		maps.Copy(b.meta, r.meta)
	}
	b.accepted = append(b.accepted, r)
	return nil
}

const (
	sqlUpsert = `INSERT INTO objects(res, ns, name, rv, enc, crc, data) VALUES(?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(res, ns, name) DO UPDATE SET rv = excluded.rv, enc = excluded.enc, crc = excluded.crc, data = excluded.data`
	sqlDelete   = "DELETE FROM objects WHERE res = ? AND ns = ? AND name = ?"
	sqlResource = "INSERT INTO resources(id, grp, name) VALUES(?, ?, ?)"
	sqlRevision = "UPDATE meta SET v = ? WHERE k = 'rv'"
	sqlMeta     = "INSERT INTO meta(k, v) VALUES(?, ?) ON CONFLICT(k) DO UPDATE SET v = excluded.v"
)

// transact does the batch in one transaction. After an error nothing of it is there.
func (w *writer) transact(b *batch) (err error) {
	if w.suspect {
		if err := w.reconnect(); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			w.db.rollback()
			// After a full disk the connection is sound.
			w.suspect = !diskFull(err) && w.store.cfg.Durability != Memory
			err = explain(err)
		}
	}()
	if w.last+reserveMargin > w.reserved {
		if err := reserve(w.db, w.last+reserveAhead); err != nil {
			return err
		}
		w.reserved = w.last + reserveAhead
	}
	if err := w.db.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	added, err := w.write(b)
	if err != nil {
		return err
	}
	if err := w.db.run("COMMIT"); err != nil {
		return err
	}
	maps.Copy(w.persisted, added)
	return nil
}

// write returns the resources that it gave a number to.
func (w *writer) write(b *batch) (map[schema.GroupResource]int64, error) {
	added := map[schema.GroupResource]int64{}
	for k, op := range b.rows {
		res, ok := w.persisted[k.Resource]
		if !ok {
			res, ok = added[k.Resource]
		}
		if !ok {
			res = int64(len(w.persisted) + len(added) + 1)
			if err := w.db.run(sqlResource, res, k.Resource.Group, k.Resource.Resource); err != nil {
				return nil, err
			}
			added[k.Resource] = res
		}
		var err error
		if op.Delete {
			err = w.db.run(sqlDelete, res, k.Namespace, k.Name)
		} else {
			crc := checksum(res, k.Namespace, k.Name, op.entry.Revision, op.row)
			err = w.db.run(sqlUpsert, res, k.Namespace, k.Name, int64(op.entry.Revision), int64(op.row.enc), crc, op.row.data)
		}
		if err != nil {
			return nil, err
		}
	}
	for k, v := range b.meta {
		if err := w.db.run(sqlMeta, k, v); err != nil {
			return nil, err
		}
	}
	return added, w.db.run(sqlRevision, int64(w.last))
}

// reconnect replaces a connection that has failed. Nothing was lost with it: a failed transaction left no trace.
func (w *writer) reconnect() error {
	db, err := connect(w.store.cfg)
	if err != nil {
		return err
	}
	if err := w.db.close(); err != nil {
		w.store.cfg.Log.Debug().Err(err).Msg("close the failed connection")
	}
	w.db, w.suspect = db, false
	return nil
}

// finish is called once the goroutine has ended.
func (w *writer) finish() error {
	var err error
	if w.suspect {
		err = w.reconnect()
	}
	if err == nil {
		st := w.store.state.Load()
		err = markClean(w.db, w.last, takeInventory(w.last, w.persisted, func(gr schema.GroupResource) int { return st.tree(gr).Len() }, w.store.meta))
	}
	if err == nil && w.store.cfg.Durability != Memory {
		if err = w.db.exec("PRAGMA synchronous=FULL"); err == nil {
			err = w.db.exec("PRAGMA wal_checkpoint(TRUNCATE)")
		}
		err = explain(err)
	}
	if cerr := w.db.close(); err == nil && cerr != nil {
		err = fmt.Errorf("close connection: %w", cerr)
	}
	return err
}
