package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A row's checksum finds damage to the row, not that the row is gone: one bad byte in the head of a page hides what else
// is on it. A clean end therefore records an inventory in the table meta, which the next start compares with
// what it has read. After an end that was not clean SQLite looks over the whole file instead.
//
// An older program knows nothing of it and leaves it behind: it holds for the revision that stands in it.
type inventory struct {
	revision Revision
	sum      uint32
}

// takeInventory sums up how many objects there are of each resource, and what has no checksum of its own.
func takeInventory(at Revision, rows map[schema.GroupResource]int64, objects func(schema.GroupResource) int, meta map[string][]byte) inventory {
	var text []byte
	add := func(s string) { text = append(binary.AppendUvarint(text, uint64(len(s))), s...) }
	for _, gr := range slices.SortedFunc(maps.Keys(rows), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
		add(gr.Group)
		add(gr.Resource)
		text = binary.AppendUvarint(binary.AppendVarint(text, rows[gr]), uint64(objects(gr)))
	}
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		add(name)
		add(string(meta[name]))
	}
	return inventory{at, crc32.Checksum(text, castagnoli)}
}

const inventoryForm = "%d %d"

func (i inventory) String() string { return fmt.Sprintf(inventoryForm, i.revision, i.sum) }

// check compares what was read, at a revision, with what a clean end has recorded; recorded is empty if it has not.
func (i inventory) check(recorded string) error {
	var was inventory
	if _, err := fmt.Sscanf(recorded, inventoryForm, &was.revision, &was.sum); err != nil || was.revision != i.revision || was.sum == i.sum {
		return nil
	}
	return fmt.Errorf("%w: something in it is missing or altered since it was closed", ErrCorrupt)
}
