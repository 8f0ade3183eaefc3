package nodesim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// markerFile is where a pod's data lies in a filesystem.
const markerFile = "drydock-marker"

// A marker is two slots that are written in turn, so that a write which a crash tears
// leaves the other one whole. A slot is larger than what filesystems keep inline:
//
//	magic, number of the write, digest of what follows and of the number, pseudo-random bytes
const (
	markerMagic = "drydock marker 1"
	markerSlot  = 64 << 10
	markerHead  = len(markerMagic) + 8 + sha256.Size
	// markerOffset keeps clear of where disks have partition tables and filesystems have superblocks.
	markerOffset = 1 << 20
)

// markerSlotOf returns the slot of one write.
func markerSlotOf(n uint64) []byte {
	b := make([]byte, markerSlot)
	copy(b, markerMagic)
	binary.BigEndian.PutUint64(b[len(markerMagic):], n)
	x := n*0x9e3779b97f4a7c15 + 1
	for i := markerHead; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	sum := markerSum(b)
	copy(b[len(markerMagic)+8:], sum[:])
	return b
}

func markerSum(slot []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(slot[:len(markerMagic)+8])
	h.Write(slot[markerHead:])
	return [sha256.Size]byte(h.Sum(nil))
}

// readSlot returns the number of the write in a slot, or zero if it holds none.
func readSlot(b []byte) uint64 {
	if len(b) != markerSlot || string(b[:len(markerMagic)]) != markerMagic {
		return 0
	}
	sum := markerSum(b)
	if !bytes.Equal(sum[:], b[len(markerMagic)+8:markerHead]) {
		return 0
	}
	return binary.BigEndian.Uint64(b[len(markerMagic):])
}

// marker is data in one volume of a pod: a file, or a place on a device.
type marker struct {
	volume   string
	path     string
	block    bool
	readOnly bool
	last     uint64 // the last write that was synced in this life; zero if none was
}

var (
	errLost    = errors.New("data is lost")
	errDamaged = errors.New("data is damaged")
	errNoData  = errors.New("there is no data")
)

// verify reads the marker and returns the number of the newest whole write. It fails
// with errNoData where nobody ever wrote, and with another error if what was written is not there.
func (m *marker) verify() (uint64, error) {
	f, err := os.Open(m.path)
	if errors.Is(err, fs.ErrNotExist) && !m.block {
		if m.last > 0 {
			return 0, fmt.Errorf("%w: the file with write %d is gone", errLost, m.last)
		}
		return 0, errNoData
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var newest uint64
	written := false
	for i := range int64(2) {
		b := make([]byte, markerSlot)
		n, err := f.ReadAt(b, m.offset()+i*markerSlot)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		written = written || bytes.HasPrefix(b, []byte(markerMagic))
		if n == markerSlot {
			newest = max(newest, readSlot(b))
		}
	}
	switch {
	case newest == 0 && written:
		return 0, fmt.Errorf("%w: no write is whole", errDamaged)
	case newest == 0 && !m.block:
		return 0, fmt.Errorf("%w: the file holds something else", errDamaged)
	case newest < m.last:
		return newest, fmt.Errorf("%w: write %d was synced, and write %d is the newest there", errLost, m.last, newest)
	case newest == 0:
		return 0, errNoData
	}
	return newest, nil
}

func (m *marker) offset() int64 {
	if m.block {
		return markerOffset
	}
	return 0
}

// write makes the next write after number n and hands the file to sync before it counts.
func (m *marker) write(n uint64, sync func(*os.File) error) error {
	name, flags := m.path, os.O_RDWR
	if n == 0 && !m.block {
		name, flags = m.path+".new", flags|os.O_CREATE|os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return err
	}
	slot, at := markerSlotOf(n+1), m.offset()+int64((n+1)%2)*markerSlot
	if n == 0 {
		err = m.appear(f, slot, at, sync)
	} else if _, err = f.WriteAt(slot, at); err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	m.last = n + 1
	return nil
}

// appear makes the first write, which has no other to stand in for it should a crash tear
// it. It is seen when it is whole: a file by its name, a device's slot by its head, which is within a sector.
func (m *marker) appear(f *os.File, slot []byte, at int64, sync func(*os.File) error) error {
	_, err := f.WriteAt(slot[markerHead:], at+int64(markerHead))
	if err == nil && !m.block {
		_, err = f.WriteAt(slot[:markerHead], at)
	}
	if err == nil {
		err = sync(f)
	}
	if err != nil {
		return err
	}
	if m.block {
		if _, err := f.WriteAt(slot[:markerHead], at); err != nil {
			return err
		}
		return sync(f)
	}
	if err := os.Rename(f.Name(), m.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(m.path))
	if err != nil {
		return err
	}
	return errors.Join(sync(dir), dir.Close())
}
