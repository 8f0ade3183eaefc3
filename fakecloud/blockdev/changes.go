package blockdev

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// changeBlock is the grain of Changes: the block size of most filesystems.
const changeBlock = 4096

func validBase(base SnapshotID) error {
	if base == "" {
		return nil
	}
	return validID(string(base))
}

// compareFiles lists where the file at of differs from the one at base; with an empty
// base, where it is not blank. Only what either file says to be data is read.
func compareFiles(ctx context.Context, of, base string) ([]Extent, error) {
	f, err := os.Open(of)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	parts, size, err := dataOf(f)
	if err != nil {
		return nil, err
	}
	var b io.ReaderAt = bytes.NewReader(nil) // all blank
	if base != "" {
		g, err := os.Open(base)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		more, _, err := dataOf(g)
		if err != nil {
			return nil, err
		}
		b, parts = g, without(union(parts, more), sameBlocks(f, g))
	}
	var out []Extent
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, p := range parts {
		end := min(p.Start+p.Length, size)
		for off := p.Start - p.Start%changeBlock; off < end; off += int64(len(x)) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			n := min(int64(len(x)), size-off)
			if err := errors.Join(readFull(f, x[:n], off), readFull(b, y[:n], off)); err != nil {
				return nil, err
			}
			out = differing(out, x[:n], y[:n], off, end)
		}
	}
	return out, nil
}

// differing appends the blocks in which x and y, which lie at off, differ before end.
func differing(out []Extent, x, y []byte, off, end int64) []Extent {
	for i := int64(0); i < int64(len(x)) && off+i < end; i += changeBlock {
		n := min(changeBlock, int64(len(x))-i)
		if bytes.Equal(x[i:i+n], y[i:i+n]) {
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Start+out[last].Length >= off+i {
			out[last].Length = max(out[last].Length, off+i+n-out[last].Start)
		} else {
			out = append(out, Extent{off + i, n})
		}
	}
	return out
}

// readFull reads b at off; what lies beyond the end is blank.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	clear(b[n:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func dataOf(f *os.File) ([]Extent, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	parts, err := extents(f, info.Size())
	return parts, info.Size(), err
}

// union merges two ordered lists.
func union(a, b []Extent) (out []Extent) {
	for len(a)+len(b) > 0 {
		if len(a) == 0 || len(b) > 0 && b[0].Start < a[0].Start {
			a, b = b, a
		}
		e := a[0]
		a = a[1:]
		if last := len(out) - 1; last >= 0 && out[last].Start+out[last].Length >= e.Start {
			out[last].Length = max(out[last].Length, e.Start+e.Length-out[last].Start)
			continue
		}
		out = append(out, e)
	}
	return out
}

// without takes the ranges of minus, ordered like those of parts, out of parts.
func without(parts, minus []Extent) (out []Extent) {
	for _, p := range parts {
		at, end := p.Start, p.Start+p.Length
		for len(minus) > 0 && minus[0].Start+minus[0].Length <= at {
			minus = minus[1:]
		}
		for _, m := range minus {
			if m.Start >= end {
				break
			}
			if m.Start > at {
				out = append(out, Extent{at, m.Start - at})
			}
			at = max(at, m.Start+m.Length)
		}
		if at < end {
			out = append(out, Extent{at, end - at})
		}
	}
	return out
}

// sameTrees tells whether two trees hold the same; without a second one, whether the first is empty.
func sameTrees(a, b string, two bool) (bool, error) {
	x, err := treeOf(a)
	if err != nil {
		return false, err
	}
	if !two {
		return len(x) == 0, nil
	}
	y, err := treeOf(b)
	if err != nil || len(x) != len(y) {
		return false, err
	}
	for path, here := range x {
		there, ok := y[path]
		if !ok || here.Mode() != there.Mode() || here.Mode().IsRegular() && here.Size() != there.Size() {
			return false, nil
		}
		if !here.Mode().IsRegular() || here.ModTime().Equal(there.ModTime()) && here.Size() == 0 {
			continue
		}
		p, err := os.ReadFile(filepath.Join(a, path))
		if err != nil {
			return false, err
		}
		q, err := os.ReadFile(filepath.Join(b, path))
		if err != nil || !bytes.Equal(p, q) {
			return false, err
		}
	}
	return true, nil
}

func treeOf(root string) (map[string]fs.FileInfo, error) {
	out := map[string]fs.FileInfo{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		out[rel], err = e.Info()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	return out, err
}
