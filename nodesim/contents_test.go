package nodesim

import (
	"os"
	"path/filepath"
	"sync"
)

// contents gives the volumes of a fleet something to lose: as long as a volume is mounted
// somewhere, a file there tells which one it is, and belongs to the volume. What is
// deleted through a mount, or covered by another volume, is noticed at the unmount.
type contents struct {
	mu    sync.Mutex
	at    map[string]string // guarded by mu: by path, the volume
	wrong func(format string, args ...any)
}

const heldBy = "held-by"

// mounted is told of a volume's mount on a directory.
func (c *contents) mounted(volume, path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.at[path]; other != "" && other != volume {
		c.wrong("%s is mounted on %s over %s", volume, path, other)
	}
	c.at[path] = volume
	return os.WriteFile(filepath.Join(path, heldBy), []byte(volume), 0o600)
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
	file := filepath.Join(path, heldBy)
	if b, err := os.ReadFile(file); err != nil || string(b) != volume {
		c.wrong("the data of %s was lost while it was mounted on %s: %q %v", volume, path, b, err)
	}
	return os.Remove(file)
}
