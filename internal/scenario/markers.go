package scenario

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// markerSize is more than a filesystem keeps inline, so that data blocks are written.
const markerSize = 64 << 10

// blockMarker is where a marker begins on a raw device.
const blockMarker = 8 << 20

func (s *story) write(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	p, err := s.place(args[0], args[1])
	if err != nil {
		return err
	}
	data := make([]byte, markerSize)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	name, flags, offset := p.marker(args[2])
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, offset)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	s.markers[args[2]] = data
	return nil
}

func (s *story) verify(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	want, ok := s.markers[args[2]]
	if !ok {
		return fmt.Errorf("no marker %s was written", args[2])
	}
	p, err := s.place(args[0], args[1])
	if err != nil {
		return err
	}
	name, _, offset := p.marker(args[2])
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	got := make([]byte, markerSize)
	if n, err := f.ReadAt(got, offset); !bytes.Equal(got, want) {
		return notSof("the marker is not what was written: %d bytes, %v", n, err)
	}
	return nil
}

// marker is the file that a marker of that name is in, how it is opened for writing, and where in the file it begins.
func (p place) marker(name string) (string, int, int64) {
	if p.block {
		return p.path, os.O_RDWR, blockMarker
	}
	return filepath.Join(p.path, name), os.O_RDWR | os.O_CREATE | os.O_TRUNC, 0
}

// damage harms files of a node. It never touches what lies in a volume: mounts are not entered.
func (s *story) damage(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	var harm func(string) error
	switch args[0] {
	case "truncate":
		harm = func(p string) error { return os.Truncate(p, 0) }
	case "remove":
		harm = os.Remove
	default:
		return errUsage
	}
	root := s.world.KubeletDir(args[1])
	n, err := harmed(root, args[2], harm)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("no file below %s is called %s", root, args[2])
	}
	return nil
}

func harmed(root, pattern string, harm func(string) error) (int, error) {
	info, err := os.Stat(root)
	if err != nil {
		return 0, err
	}
	n := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if fi, err := d.Info(); err == nil && device(fi) != device(info) {
				return filepath.SkipDir
			}
			return nil
		}
		name := d.Name()
		if strings.Contains(pattern, "/") {
			if name, err = filepath.Rel(root, path); err != nil {
				return err
			}
		}
		if ok, err := filepath.Match(pattern, filepath.ToSlash(name)); err != nil || !ok {
			return err
		}
		n++
		return harm(path)
	})
	return n, err
}
