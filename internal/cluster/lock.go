package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrRunning is the kind of error that a second start of a cluster gets.
var ErrRunning = errors.New("already running")

// errHeld is what hold and share return while another process holds the file.
var errHeld = errors.New("held by another process")

// lock holds a state directory for one process. The kernel releases it with the process.
type lock struct{ f *os.File }

func takeLock(l Layout) (*lock, error) {
	if err := os.MkdirAll(l.Root, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory %s: %w", l.Root, err)
	}
	f, err := os.OpenFile(l.Lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory %s: %w", l.Root, err)
	}
	if err := hold(f); err != nil {
		pid, _ := readPID(l)
		f.Close()
		if errors.Is(err, errHeld) {
			return nil, fmt.Errorf("cluster in %s: %w as process %d; stop it with \"drydock down --state %s\", or start another with --name", l.Root, ErrRunning, pid, l.Root)
		}
		return nil, fmt.Errorf("lock state directory %s: %w", l.Root, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("write lock of %s: %w", l.Root, err)
		}
	}
	return &lock{f}, nil
}

func (k *lock) release() error { return k.f.Close() }

// Owner returns the process that runs the cluster, or zero when none does.
func Owner(l Layout) (int, error) {
	f, err := os.OpenFile(l.Lock(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", filepath.Base(l.Lock()), err)
	}
	defer f.Close()
	err = share(f)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, errHeld) {
		return 0, fmt.Errorf("look at lock of %s: %w", l.Root, err)
	}
	return readPID(l)
}

func readPID(l Layout) (int, error) {
	b, err := os.ReadFile(l.Lock())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
