// Package storage keeps the objects of the Kubernetes API: on disk in SQLite, for
// reading in memory.
//
//	Write --> writer goroutine --> one SQLite transaction --> publish --> answer
//	          (takes what is queued,                          new trees, ring,
//	           no added delay)                                watch queues
//
// Promises.
//   - Write returns only after its transaction is committed, and what it wrote is
//     then visible to Get, Snapshot and every watch. A Write that returns an error has
//     changed nothing and published nothing.
//   - There is one revision counter. It grows by one for each object written and is
//     never used twice, not even after power was lost. Revisions that a failed
//     commit would have used are skipped.
//   - All operations of one Write happen together or not at all.
//   - A watch sees every event of its resource once, in the order of revisions. One
//     that lags too far behind is ended with ErrSlow; writers never wait for it.
//   - Objects that the store hands out are shared. Nobody may change them.
//
// The file belongs to one process; the caller holds a lock on the state directory.
// Reads never touch SQLite. An idle store does nothing.
package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// Durability says what a committed write survives.
type Durability string

// The levels. Revisions never repeat at any of them that has a file.
const (
	Normal Durability = ""       // the process's death; a loss of power may cost the last commits
	Full   Durability = "full"   // a loss of power as well
	Memory Durability = "memory" // nothing: there is no file
)

// Config of Open.
type Config struct {
	// Path of the database file. Its directory must exist.
	Path       string
	Durability Durability
	// Clock times the checkpoints; nil is real time.
	Clock clock.WithTicker
	Log   zerolog.Logger
	// Scheme knows the stored kinds; nil is client-go's. Kinds outside k8s.io/api must be added to it before Open.
	Scheme *runtime.Scheme
	// RingEvents bounds the past events of one resource, RingBytes what all of them may
	// weigh (an estimate). Zero means 16384 and 32 MiB.
	RingEvents int
	RingBytes  int
}

// Kinds of error. Write and Open wrap them.
var (
	ErrClosed      = errors.New("store is closed")
	ErrUnavailable = errors.New("store is unavailable")
	ErrExpired     = errors.New("revision is too old")
	ErrSlow        = errors.New("watch lags too far behind")
	ErrTooLarge    = errors.New("object is too large")
	ErrCorrupt     = errors.New("database is damaged")
	ErrNewer       = errors.New("database was written by a newer version")
)

// Store is safe for concurrent use.
type Store struct {
	cfg   Config
	codec codec
	hub   *hub

	state atomic.Pointer[state] // what is current; replaced by the writer on publish

	queue     chan *request
	closeMu   sync.RWMutex // held for reading while a request is put into queue
	closed    bool         // guarded by closeMu
	closeOnce sync.Once
	closeErr  error
	wg        sync.WaitGroup

	writer *writer // owned by the writer goroutine after Open
	check  *checkpointer

	healthMu sync.Mutex
	health   error // guarded by healthMu

	metaMu sync.Mutex
	meta   map[string][]byte // guarded by metaMu: what SetMeta kept
}

// Open loads the database, creating or migrating it as needed. It refuses one that is
// newer than this program or damaged, and then leaves it as it is.
func Open(cfg Config) (*Store, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Scheme == nil {
		cfg.Scheme = scheme.Scheme
	}
	if cfg.RingEvents <= 0 {
		cfg.RingEvents = 16384
	}
	if cfg.RingBytes <= 0 {
		cfg.RingBytes = 32 << 20
	}
	s, err := open(cfg, migrations)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.describe(), err)
	}
	return s, nil
}

func (c Config) describe() string {
	if c.Durability == Memory {
		return "in memory"
	}
	return c.Path
}

func open(cfg Config, steps []migration) (_ *Store, err error) {
	switch cfg.Durability {
	case Normal, Full, Memory:
	default:
		return nil, fmt.Errorf("unknown durability %q; known are full, memory and the empty default", cfg.Durability)
	}
	db, err := openDatabase(cfg, steps)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.close()
		}
	}()
	s := &Store{cfg: cfg, codec: newCodec(cfg.Scheme), queue: make(chan *request, 1024)}
	loaded, err := load(db, s.codec)
	if err != nil {
		return nil, err
	}
	s.meta = loaded.meta
	start, err := reserveAtStart(db, loaded.revision)
	if err != nil {
		return nil, err
	}
	s.state.Store(&state{revision: start, ids: loaded.ids, trees: loaded.trees})
	s.hub = newHub(cfg, loaded.revision, start, len(loaded.trees))
	s.writer = &writer{store: s, db: db, last: start, reserved: start + reserveAhead, persisted: loaded.rows}
	s.check = newCheckpointer(cfg, db)
	s.wg.Go(s.writer.run)
	if s.check != nil {
		s.wg.Go(s.check.run)
	}
	return s, nil
}

// Close answers what is queued, ends every watch with ErrClosed and closes the file. After
// a clean Close the next Open goes on with the very next revision.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.closeMu.Lock()
		s.closed = true
		close(s.queue)
		s.closeMu.Unlock()
		if s.check != nil {
			s.check.stop()
		}
		s.wg.Wait()
		s.hub.close()
		if err := s.writer.finish(); err != nil {
			s.closeErr = fmt.Errorf("close store %s: %w", s.cfg.describe(), err)
		}
	})
	return s.closeErr
}

// Revision is that of the latest published write.
func (s *Store) Revision() Revision { return s.state.Load().revision }

// Healthy is nil, or says why the last write could not be committed.
func (s *Store) Healthy() error {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	return s.health
}

func (s *Store) setHealth(err error) {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	switch {
	case err != nil && s.health == nil:
		s.cfg.Log.Error().Err(err).Msg("store cannot write; it keeps trying with each new write")
	case err == nil && s.health != nil:
		s.cfg.Log.Info().Msg("store can write again")
	}
	s.health = err
}
