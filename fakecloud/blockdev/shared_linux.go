package blockdev

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The FIEMAP request, _IOWR('f', 11, struct fiemap), and what it speaks of.
const (
	fsIocFiemap   = 0xc020660b
	fiemapSync    = 0x1
	fiemapLast    = 0x1
	fiemapShared  = 0x2000
	fiemapBad     = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 // places unknown, unaligned, encoded, or data not written
	fiemapExtents = 256
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length        uint64
	flags, mapped, count uint32
	_                    uint32
	extents              [fiemapExtents]fiemapExtent
}

// mapping lists where a file's shared blocks lie on the disk, or nothing where the
// filesystem cannot tell.
func mapping(f *os.File) (out []fiemapExtent) {
	var m fiemap
	for start := uint64(0); ; {
		m = fiemap{start: start, length: ^uint64(0) - start, flags: fiemapSync, count: fiemapExtents}
		if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m))); no != 0 || m.mapped == 0 {
			return out
		}
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			if e.flags&fiemapShared != 0 && e.flags&fiemapBad == 0 {
				out = append(out, e)
			}
			if start = e.logical + e.length; e.flags&fiemapLast != 0 {
				return out
			}
		}
	}
}

// sameBlocks lists where two files lie on the same blocks of the disk, as after a
// reflink, and hence cannot differ.
func sameBlocks(f, g *os.File) (out []Extent) {
	a, b := mapping(f), mapping(g)
	for len(a) > 0 && len(b) > 0 {
		x, y := a[0], b[0]
		from, to := max(x.logical, y.logical), min(x.logical+x.length, y.logical+y.length)
		if from < to && x.physical-x.logical == y.physical-y.logical {
			out = append(out, Extent{int64(from), int64(to - from)})
		}
		if x.logical+x.length <= y.logical+y.length {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}
