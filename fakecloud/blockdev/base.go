package blockdev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"drydock.dev/drydock/internal/lab"
)

// base is what both backends share: directories, faults, one lock a volume.
type base struct {
	volumes   string // directory of volume images
	snapshots string // directory of snapshot images
	o         Options

	mu       sync.Mutex
	closed   bool                       // guarded by mu
	attached map[VolumeID]*attachment   // guarded by mu
	busy     map[VolumeID]chan struct{} // guarded by mu: closed when the volume is free again
}

// attachment is one attached volume. The volume's lock guards what changes.
type attachment struct {
	volume   Volume
	readOnly bool
	device   string
	links    map[string]string // droplet -> its link, empty when it has no by-id directory; guarded by base.mu as well
	limited  bool              // its device has an I/O limit
	hold     *os.File          // an open loop device: it lives as long as somebody holds it
}

// node is the droplet that calls on the device are told to be on: the first of several.
func (a *attachment) node() string {
	droplets := slices.Sorted(maps.Keys(a.links))
	if len(droplets) == 0 {
		return ""
	}
	return droplets[0]
}

func newBase(dir string, o Options) (*base, error) {
	if o.Lab == nil {
		return nil, errors.New("open block devices: no lab given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open block devices: %w", err)
	}
	b := &base{
		volumes: filepath.Join(dir, "volumes"), snapshots: filepath.Join(dir, "snapshots"), o: o,
		attached: map[VolumeID]*attachment{}, busy: map[VolumeID]chan struct{}{},
	}
	for _, d := range []string{b.volumes, b.snapshots} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("open block devices: %w", err)
		}
	}
	return b, nil
}

// lock waits until no other call works on the volume. The unlock it returns has
// no effect outside memory, so it may run in a killed component's last breath.
func (b *base) lock(ctx context.Context, id VolumeID) (unlock func(), err error) {
	if err := validID(string(id)); err != nil {
		return nil, err
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, errors.New("the block devices are closed")
		}
		free, taken := b.busy[id]
		if !taken {
			done := make(chan struct{})
			b.busy[id] = done
			b.mu.Unlock()
			return func() {
				b.mu.Lock()
				delete(b.busy, id)
				b.mu.Unlock()
				close(done)
			}, nil
		}
		b.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (b *base) attachment(id VolumeID) *attachment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attached[id]
}

func (b *base) setAttachment(id VolumeID, a *attachment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a == nil {
		delete(b.attached, id)
		return
	}
	b.attached[id] = a
}

// op runs one kernel operation under the fault rules. Done tells whether the work
// itself succeeded: a fault can report an error for work that was done.
func (b *base) op(ctx context.Context, op string, v Volume, node string, work func() error) (done bool, err error) {
	name := v.Name
	if name == "" {
		name = string(v.ID)
	}
	call := lab.Call{Component: "cloud", Node: node, Kind: lab.KindKernel, Op: op, Volume: name}
	err = b.o.Lab.Faults.Do(ctx, call, func(context.Context) error {
		e := work()
		done = e == nil
		return e
	})
	return done, asErrno(err)
}

// asErrno gives a fault the errno that it stands for.
func asErrno(err error) error {
	fault := lab.AsError(err)
	if fault == nil {
		return err
	}
	if fault.Action == lab.LateOK || fault.Action == lab.Lost {
		return fmt.Errorf("%w: %w", err, syscall.ETIMEDOUT)
	}
	if no, ok := errnos[fault.Code]; ok {
		return fmt.Errorf("%w: %w", err, no)
	}
	return fmt.Errorf("%w: %w", err, syscall.EIO)
}

var errnos = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN, "EBUSY": syscall.EBUSY, "EDQUOT": syscall.EDQUOT, "EEXIST": syscall.EEXIST,
	"EFBIG": syscall.EFBIG, "EINVAL": syscall.EINVAL, "EIO": syscall.EIO, "EMFILE": syscall.EMFILE, "ENODEV": syscall.ENODEV,
	"ENOENT": syscall.ENOENT, "ENOMEM": syscall.ENOMEM, "ENOSPC": syscall.ENOSPC, "ENXIO": syscall.ENXIO, "EPERM": syscall.EPERM,
	"EROFS": syscall.EROFS, "ETIMEDOUT": syscall.ETIMEDOUT,
}

// validID keeps ids from leaving their directory.
func validID(id string) error {
	if id == "" || len(id) > 128 || strings.ContainsAny(id, `/\:`+"\x00") || strings.HasPrefix(id, ".") {
		return fmt.Errorf("image id %q cannot be a file name", id)
	}
	return nil
}

// list returns the images in dir with that suffix, and the paths of everything
// else. What has the name but not the shape of an image, such as one whose making
// was cut short, has size -1.
func list(dir, suffix string, measure func(path string) (size int64, err error)) (files []File, strays []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || validID(id) != nil {
			strays = append(strays, path)
			continue
		}
		size, err := measure(path)
		if err != nil {
			if !exists(path) {
				continue // deleted since the directory was read
			}
			size = -1
		}
		files = append(files, File{ID: id, Path: path, Size: size})
	}
	return files, strays, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
