package storage

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/utils/clock"
)

const (
	checkpointDelay = time.Second // after the first write since the last checkpoint
	checkpointBytes = 4 << 20     // or once that much was written
	truncateBytes   = 32 << 20    // a WAL file that has grown to this is cut back; meanwhile it may double
)

// checkpointer moves pages from the WAL to the database on a connection of its own, so
// that the writer never does. It sleeps until something was written.
type checkpointer struct {
	cfg   Config
	clock clock.WithTicker
	log   zerolog.Logger

	dirty   chan struct{} // capacity 1: something was written
	full    chan struct{} // capacity 1: a lot was written
	pending atomic.Int64  // bytes since the last checkpoint
	done    atomic.Int64  // checkpoints
	quit    chan struct{}
	once    sync.Once
	turn    sync.Mutex // held by a transaction of the writer, and while the WAL is cut back
}

// newCheckpointer returns nil, on which every method does nothing, for a store without a file.
func newCheckpointer(cfg Config, _ *database) *checkpointer {
	if cfg.Durability == Memory {
		return nil
	}
	return &checkpointer{cfg: cfg, clock: cfg.Clock, log: cfg.Log, dirty: make(chan struct{}, 1), full: make(chan struct{}, 1), quit: make(chan struct{})}
}

// wrote tells of a commit. It never blocks.
func (c *checkpointer) wrote(rows, bytes int) {
	if c == nil {
		return
	}
	const rowOverhead = 8192 // a row touches about a table page and an index page
	poke(c.dirty)
	if c.pending.Add(int64(rows*rowOverhead+bytes)) > checkpointBytes {
		poke(c.full)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *checkpointer) stop() { c.once.Do(func() { close(c.quit) }) }

func (c *checkpointer) run() {
	var db *database
	defer func() {
		if db != nil {
			_ = db.close() // nothing was written through it
		}
	}()
	for {
		select {
		case <-c.quit:
			return
		case <-c.dirty:
		}
		t := c.clock.NewTimer(checkpointDelay)
		select {
		case <-c.quit:
			t.Stop()
			return
		case <-c.full:
		case <-t.C():
		}
		t.Stop()
		c.pending.Store(0)
		if db == nil {
			var err error
			if db, err = connect(c.cfg); err != nil {
				c.log.Warn().Err(err).Msg("checkpoint: open a second connection")
				continue
			}
		}
		if err := c.checkpoint(db); err != nil {
			c.log.Warn().Err(explain(err)).Msg("checkpoint")
			_ = db.close() // a fresh connection for the next attempt
			db = nil
		}
		c.done.Add(1)
	}
}

// checkpoint is passive, which waits for nobody and holds up nobody. Under writes without a pause there is always
// something left to move, and the file grows: then the writer waits while the rest is moved and the file
// cut back. It could not be made to wait by SQLite, which looks for a gap between two transactions.
func (c *checkpointer) checkpoint(db *database) error {
	err := db.exec("PRAGMA wal_checkpoint(PASSIVE)")
	if fi, serr := os.Stat(c.cfg.Path + "-wal"); err != nil || serr != nil || fi.Size() <= truncateBytes {
		return err
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	return db.exec("PRAGMA wal_checkpoint(TRUNCATE)")
}

// writing runs a transaction of the writer.
func (c *checkpointer) writing(do func() error) error {
	if c != nil {
		c.turn.Lock()
		defer c.turn.Unlock()
	}
	return do()
}
