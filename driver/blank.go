package driver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// extent is a part of a device.
type extent struct{ off, len int64 }

const (
	edge        = 1 << 20 // read at either end of a device: partition tables, superblocks, RAID and LVM labels, group descriptors
	sample      = 16 << 10
	samples     = 16 // evenly over the device; xfs's allocation groups start at its quarters
	extGroup    = 128 << 20
	blockBuffer = 256 << 10
)

// suspects are where a device that is not blank shows it, whatever it was used for:
// both ends, the places of backup superblocks and second labels, the format mark, and a
// grid over all of it. They are sorted and do not overlap. Reading all of a device
// would take a thousand times as long as formatting it.
func suspects(size int64) []extent {
	list := []extent{{0, edge}, {size - edge, edge}, {markOffset(size), markSize}}
	for i := range int64(samples) {
		list = append(list, extent{size / samples * i, sample})
	}
	for _, group := range []int64{1, 3, 5, 7, 9, 25, 27, 49, 81} { // ext4, blocks of 4 KiB: backup superblocks and group descriptors
		list = append(list, extent{group * extGroup, sample})
	}
	for _, off := range []int64{8<<20 + 1<<10, 64 << 20, 256 << 30} { // ext4 with blocks of 1 KiB; btrfs mirrors
		list = append(list, extent{off, sample})
	}
	var out []extent
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	for _, e := range list {
		end := min(e.off+e.len, size)
		e.off = max(e.off, 0)
		if n := len(out); n > 0 && e.off <= out[n-1].off+out[n-1].len {
			out[n-1].len = max(out[n-1].len, end-out[n-1].off)
		} else if e.off < end {
			out = append(out, extent{e.off, end - e.off})
		}
	}
	return out
}

var zeros [blockBuffer]byte

// firstData returns the offset of the first byte in the suspects that is not zero, -1
// if there is none. What lies in except is passed over. A part that cannot be read is an error.
func firstData(r io.ReaderAt, size int64, except extent) (int64, error) {
	buf := make([]byte, blockBuffer)
	for _, e := range suspects(size) {
		for off := e.off; off < e.off+e.len; {
			b := buf[:min(int64(len(buf)), e.off+e.len-off)]
			n, err := r.ReadAt(b, off)
			if n < len(b) {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return 0, fmt.Errorf("read %d bytes at %d: %w", len(b), off, err)
			}
			blot(b, off, except)
			if !bytes.Equal(b, zeros[:len(b)]) {
				return off + int64(slices.IndexFunc(b, func(c byte) bool { return c != 0 })), nil
			}
			off += int64(n)
		}
	}
	return -1, nil
}

// blot zeroes the bytes of b, which were read at off, that lie in e.
func blot(b []byte, off int64, e extent) {
	from, to := max(e.off-off, 0), min(e.off+e.len-off, int64(len(b)))
	if from < to {
		clear(b[from:to])
	}
}
