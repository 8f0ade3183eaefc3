package volumemanager

import (
	"errors"
	"os"
	"sync"
)

// deviceLocks keep mapped devices open, so that the kernel gives a device's number to
// nothing else while a pod may use it. The kubelet puts a loop device over the bind
// for that, which outlives it; here the descriptor goes with the kubelet, as
// everything does that is not on disk, and comes back when the volume is mapped anew.
type deviceLocks struct {
	mu   sync.Mutex
	held map[key]*os.File // guarded by mu
}

func (l *deviceLocks) take(k key, path string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	old := l.held[k]
	if l.held == nil {
		l.held = map[key]*os.File{}
	}
	l.held[k] = f
	if old != nil {
		return old.Close()
	}
	return nil
}

// release lets go of a device. One that is not held is no error: it was mapped in another life.
func (l *deviceLocks) release(k key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.held[k]
	delete(l.held, k)
	if f == nil {
		return nil
	}
	return f.Close()
}

func (l *deviceLocks) releaseAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range l.held {
		errs = append(errs, f.Close())
	}
	l.held = nil
	return errors.Join(errs...)
}

func (l *deviceLocks) holds(k key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[k] != nil
}
