package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copySparse copies the data of src to dst, leaves holes as holes, and gives dst
// src's size. Extents says where data may be; a nil one means everywhere.
func copySparse(ctx context.Context, dst, src *os.File, progress Progress) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	parts, err := extents(src, info.Size())
	if err != nil {
		return err
	}
	var total, done int64
	for _, p := range parts {
		total += p.Length
	}
	buf := make([]byte, 1<<20)
	for _, p := range parts {
		for off := p.Start; off < p.Start+p.Length; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(int64(len(buf)), p.Start+p.Length-off)
			m, err := src.ReadAt(buf[:n], off)
			if m == 0 && err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if m == 0 {
				break
			}
			if err := writeNonZero(dst, buf[:m], off); err != nil {
				return err
			}
			off += int64(m)
			done += int64(m)
			if progress != nil {
				progress(done, total)
			}
		}
	}
	return nil
}

// writeNonZero writes b without its blank blocks, which dst has already as holes.
func writeNonZero(dst *os.File, b []byte, off int64) error {
	const block = 64 << 10
	for len(b) > 0 {
		n := min(block, len(b))
		if !blank(b[:n]) {
			if _, err := dst.WriteAt(b[:n], off); err != nil {
				return err
			}
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// copyImage makes a new file at to with the content of from: by a reflink where
// the filesystem has it, else by its data alone. On error there is no file.
func copyImage(ctx context.Context, to, from string, progress Progress) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := dst.Close(); err == nil {
			err = e
		}
		if err != nil {
			os.Remove(to)
		}
	}()
	if reflink(dst, src) == nil {
		return nil
	}
	return copySparse(ctx, dst, src, progress)
}

// copyTree copies directories, files, links, modes and times. Sockets and pipes are left out.
func copyTree(ctx context.Context, to, from string) error {
	type dir struct {
		path string
		info fs.FileInfo
	}
	var dirs []dir
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			dirs = append(dirs, dir{target, info})
			return os.MkdirAll(target, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			dest, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(dest, target)
		case info.Mode().IsRegular():
			if err := copyImage(ctx, target, path, nil); err != nil {
				return err
			}
			return keepMeta(target, info)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := keepMeta(dirs[i].path, dirs[i].info); err != nil {
			return err
		}
	}
	return nil
}

func keepMeta(path string, info fs.FileInfo) error {
	keepOwner(path, info)
	if err := os.Chmod(path, info.Mode().Perm()|info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}
