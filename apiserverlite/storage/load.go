package storage

import (
	"database/sql/driver"
	"fmt"
	"runtime"
	"strings"

	"github.com/google/btree"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// contents is what a database holds.
type contents struct {
	revision Revision // of the last committed write
	ids      map[schema.GroupResource]int
	rows     map[schema.GroupResource]int64 // id in the table "resources"
	trees    []*tree
	meta     map[string][]byte
}

// load reads everything, or fails without a partial result.
func load(db *database, c codec) (*contents, error) {
	clean, err := db.number("SELECT v FROM meta WHERE k = 'clean'")
	if err != nil {
		return nil, explain(err)
	}
	if clean == 0 {
		if err := integrity(db); err != nil {
			return nil, err
		}
	}
	rev, err := db.number("SELECT v FROM meta WHERE k = 'rv'")
	if err != nil {
		return nil, explain(err)
	}
	out := &contents{revision: Revision(rev), ids: map[schema.GroupResource]int{}, rows: map[schema.GroupResource]int64{}}
	var recorded string
	if out.meta, recorded, err = loadMeta(db); err != nil {
		return nil, explain(err)
	}
	byRow := map[int64]schema.GroupResource{}
	err = db.query("SELECT id, grp, name FROM resources ORDER BY id", func(v []driver.Value) error {
		id, isID := v[0].(int64)
		group, isGroup := v[1].(string)
		name, isName := v[2].(string)
		if !isID || !isGroup || !isName {
			return fmt.Errorf("%w: a resource is %v, %v, %v", ErrCorrupt, v[0], v[1], v[2])
		}
		gr := schema.GroupResource{Group: group, Resource: name}
		byRow[id] = gr
		out.rows[gr] = id
		out.ids[gr] = len(out.trees)
		out.trees = append(out.trees, newTree())
		return nil
	})
	if err != nil {
		return nil, explain(err)
	}
	entries, err := loadObjects(db, c, byRow, out.revision)
	if err != nil {
		return nil, explain(err)
	}
	for _, e := range entries {
		out.trees[out.ids[e.Key.Resource]].ReplaceOrInsert(e)
	}
	if clean == 0 {
		return out, nil
	}
	have := takeInventory(out.revision, out.rows, func(gr schema.GroupResource) int { return out.trees[out.ids[gr]].Len() }, out.meta)
	return out, have.check(recorded)
}

// loadMeta returns what SetMeta has kept, and the inventory that was recorded.
func loadMeta(db *database) (kept map[string][]byte, recorded string, err error) {
	kept = map[string][]byte{}
	err = db.query("SELECT k, v FROM meta", func(v []driver.Value) error {
		k, _ := v[0].(string)
		b, isBlob := v[1].([]byte)
		if name, own := strings.CutPrefix(k, metaPrefix); own && isBlob {
			kept[name] = b
		} else if k == metaInventory {
			recorded, _ = v[1].(string)
		}
		return nil
	})
	return kept, recorded, err
}

func newTree() *tree { return btree.NewG(32, less) }

// loadObjects decodes on every core: decoding is nine tenths of the work.
func loadObjects(db *database, c codec, byRow map[int64]schema.GroupResource, max Revision) ([]*Entry, error) {
	var entries []*Entry
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	err := db.query("SELECT res, ns, name, rv, enc, crc, data FROM objects ORDER BY res, ns, name", func(v []driver.Value) error {
		stored, err := scanObject(v)
		if err != nil {
			return err
		}
		gr, known := byRow[stored.res]
		if !known {
			return fmt.Errorf("%w: object %s/%s is of the unknown resource number %d", ErrCorrupt, stored.namespace, stored.name, stored.res)
		}
		e := &Entry{Key: Key{gr, stored.namespace, stored.name}, Revision: stored.revision}
		if stored.revision > max {
			return fmt.Errorf("%w: %s has revision %d, the counter stands at %d", ErrCorrupt, e.Key, stored.revision, max)
		}
		entries = append(entries, e)
		g.Go(func() error { return stored.fill(e, c) })
		return nil
	})
	if werr := g.Wait(); err == nil {
		err = werr
	}
	return entries, err
}

// stored is one row of the table "objects".
type stored struct {
	res             int64
	namespace, name string
	revision        Revision
	crc             int64
	row             row
}

func scanObject(v []driver.Value) (*stored, error) {
	s := &stored{}
	var ok [7]bool
	var rev, enc int64
	s.res, ok[0] = v[0].(int64)
	s.namespace, ok[1] = v[1].(string)
	s.name, ok[2] = v[2].(string)
	rev, ok[3] = v[3].(int64)
	enc, ok[4] = v[4].(int64)
	s.crc, ok[5] = v[5].(int64)
	s.row.data, ok[6] = v[6].([]byte)
	for i, good := range ok {
		if !good {
			return nil, fmt.Errorf("%w: column %d of an object has type %T", ErrCorrupt, i, v[i])
		}
	}
	s.revision, s.row.enc = Revision(rev), encoding(enc)
	return s, nil
}

func (s *stored) fill(e *Entry, c codec) error {
	if checksum(s.res, s.namespace, s.name, s.revision, s.row) != s.crc {
		return fmt.Errorf("%w: the checksum of %s does not fit", ErrCorrupt, e.Key)
	}
	o, err := c.decode(s.row)
	if apiruntime.IsNotRegisteredError(err) {
		return fmt.Errorf("decode %s: the program does not know this kind: %w", e.Key, err)
	}
	if err != nil {
		return fmt.Errorf("%w: decode %s: %w", ErrCorrupt, e.Key, err)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("%w: decode %s: %w", ErrCorrupt, e.Key, err)
	}
	if m.GetName() != s.name || m.GetNamespace() != s.namespace {
		return fmt.Errorf("%w: %s holds the object %s", ErrCorrupt, e.Key, Path(m.GetNamespace(), m.GetName()))
	}
	setRevision(o, s.revision)
	e.Object, e.path, e.sum, e.size = o, e.Key.Path(), c.sum(s.row.data), len(s.row.data)
	return nil
}

// integrity asks SQLite to look over the file; done after an end that was not clean.
func integrity(db *database) error {
	var found []string
	err := db.query("PRAGMA quick_check(3)", func(v []driver.Value) error {
		if s, _ := v[0].(string); s != "ok" {
			found = append(found, s)
		}
		return nil
	})
	if err != nil {
		return explain(err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrCorrupt, strings.Join(found, "; "))
	}
	return nil
}
