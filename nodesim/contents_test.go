package nodesim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// heldBy is the file of a volume, at the root of each of its mounts.
const heldBy = "held-by"

// disks are the volumes of a fleet: each is one file, which is linked to wherever the
// volume is mounted, on whatever node. It tells which volume it is, and the number of the
// last write. What a pod was told is written must be there for whoever reads next.
type disks struct {
	dir   string
	wrong func(format string, args ...any)

	mu    sync.Mutex
	acked map[string]uint64 // guarded by mu: by volume, the last write that was synced
}

func written(volume string, n uint64) string { return fmt.Sprintf("%s %020d\n", volume, n) }

// file is the volume's, made when it is first needed.
func (d *disks) file(volume string) (string, error) {
	path := filepath.Join(d.dir, volume)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(written(volume, 0))
	return path, errors.Join(err, f.Close())
}

// write is what a pod does that has the volume at path: it reads what was written last,
// writes the next, and syncs. Like any program it makes the file if there is none.
func (d *disks) write(volume, path string) error { return d.put(volume, path, os.O_CREATE) }

// writeAgain is write for a volume that may go at any moment: where there is no file, there is none.
func (d *disks) writeAgain(volume, path string) error { return d.put(volume, path, 0) }

func (d *disks) put(volume, path string, flag int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(path, heldBy), os.O_RDWR|flag, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n := d.acked[volume]
	b := make([]byte, 200)
	read, _ := f.ReadAt(b, 0)
	if got, want := string(b[:read]), written(volume, n); got != want && (got != "" || n > 0) {
		d.wrong("%s at %s holds %q, and %q was synced last", volume, path, got, want)
	}
	if _, err = f.WriteAt([]byte(written(volume, n+1)), 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		d.acked[volume] = n + 1
	}
	return err
}

// writes is how many there were.
func (d *disks) writes() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.acked {
		n += int64(x)
	}
	return n
}

// look is a read of a pod that has the volume at path.
func (d *disks) look(volume, path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := os.ReadFile(filepath.Join(path, heldBy))
	if want := written(volume, d.acked[volume]); err != nil || string(b) != want {
		d.wrong("%s at %s holds %q, and %q was synced last: %v", volume, path, b, want, err)
	}
}

// contents gives the volumes of a node something to lose: as long as a volume is mounted
// somewhere, its file is there. What is deleted through a mount, replaced or covered by
// another volume, is noticed at the unmount.
type contents struct {
	disks *disks
	mu    sync.Mutex
	at    map[string]string // guarded by mu: by path, the volume
}

// mounted is told of a volume's mount on a directory.
func (c *contents) mounted(volume, path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.at[path]; other != "" && other != volume {
		c.disks.wrong("%s is mounted on %s over %s", volume, path, other)
	}
	c.at[path] = volume
	file, err := c.disks.file(volume)
	if err != nil {
		return err
	}
	if err := os.Link(file, filepath.Join(path, heldBy)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	if !c.same(volume, path) {
		c.disks.wrong("%s is mounted on %s, where something else is", volume, path)
	}
	return nil
}

// same tells whether a path shows the volume.
func (c *contents) same(volume, path string) bool {
	is, err := os.Stat(filepath.Join(path, heldBy))
	want, err2 := os.Stat(filepath.Join(c.disks.dir, volume))
	return err == nil && err2 == nil && os.SameFile(is, want)
}

// unmounted is told of every unmount, whoever does it.
func (c *contents) unmounted(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	volume := c.at[path]
	if volume == "" {
		return nil
	}
	delete(c.at, path)
	if !c.same(volume, path) {
		c.disks.wrong("the data of %s was lost while it was mounted on %s", volume, path)
	}
	return os.Remove(filepath.Join(path, heldBy))
}

// TestDisksNoticeWhatIsLost: the oracle of the fleet's data can fail, and says why.
func TestDisksNoticeWhatIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(m *contents, volume, here, there string) error
		want string
	}{
		"nothing": {func(m *contents, v, here, there string) error { return nil }, ""},
		"the pod writes to its node's own disk": {func(m *contents, v, here, there string) error {
			return errors.Join(m.unmounted(here), m.disks.write(v, here), m.mounted(v, there), m.disks.write(v, there))
		}, "holds"},
		"a state of before the last write is mounted": {func(m *contents, v, here, there string) error {
			old, err := os.ReadFile(filepath.Join(here, heldBy))
			if err = errors.Join(err, m.disks.write(v, here), m.mounted(v, there), os.Remove(filepath.Join(there, heldBy))); err != nil {
				return err
			}
			err = os.WriteFile(filepath.Join(there, heldBy), old, 0o600)
			m.disks.look(v, there)
			return err
		}, "was synced last"},
		"another volume is mounted": {func(m *contents, v, here, there string) error {
			err := m.mounted("other", there)
			m.disks.look(v, there)
			return err
		}, `holds "other`},
		"it is deleted through the mount": {func(m *contents, v, here, there string) error {
			os.Remove(filepath.Join(here, heldBy))
			m.unmounted(here)
			return nil
		}, "was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			m := &contents{at: map[string]string{}, disks: &disks{dir: t.TempDir(), acked: map[string]uint64{},
				wrong: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}}
			here, there := t.TempDir(), t.TempDir()
			for _, err := range []error{m.mounted("v", here), m.disks.write("v", here), m.disks.write("v", here), c.harm(m, "v", here, there)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if all := strings.Join(said, "; "); !strings.Contains(all, c.want) || c.want == "" && all != "" {
				t.Errorf("says %q, want %q", all, c.want)
			}
		})
	}
}
