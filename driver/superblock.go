package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// superblock is what the driver reads of a filesystem without asking a tool.
type superblock struct {
	bytes int64 // size of the filesystem
	fresh bool  // it has never been mounted, as far as the superblock can tell
}

const superblockBytes = 4096 // from the start of the device; holds those of ext and xfs

func readSuperblock(r io.ReaderAt, fs FSType) (superblock, error) {
	b := make([]byte, superblockBytes)
	if _, err := r.ReadAt(b, 0); err != nil {
		return superblock{}, fmt.Errorf("read the superblock: %w", err)
	}
	parse := parseExt
	if fs == "xfs" {
		parse = parseXFS
	}
	s, err := parse(b)
	if err != nil {
		return s, fmt.Errorf("read the superblock of %s: %w", fs, err)
	}
	return s, nil
}

// parseExt reads the superblock of ext2, ext3 and ext4 (Documentation/filesystems/ext4).
func parseExt(b []byte) (superblock, error) {
	if len(b) < superblockBytes {
		return superblock{}, io.ErrUnexpectedEOF
	}
	le, s := binary.LittleEndian, b[1024:2048]
	if le.Uint16(s[0x38:]) != 0xef53 {
		return superblock{}, errors.New("no magic number")
	}
	blocks := uint64(le.Uint32(s[0x4:]))
	if le.Uint32(s[0x60:])&0x80 != 0 { // 64bit
		blocks |= uint64(le.Uint32(s[0x150:])) << 32
	}
	shift := le.Uint32(s[0x18:])
	if shift > 6 {
		return superblock{}, fmt.Errorf("a block size of 2^%d KiB", shift)
	}
	size, err := multiply(blocks, 1024<<shift)
	// s_mtime and its high byte, and s_mnt_count
	return superblock{size, le.Uint32(s[0x2c:]) == 0 && s[0x275] == 0 && le.Uint16(s[0x34:]) == 0}, err
}

// parseXFS reads the superblock of xfs (xfs_dsb in the kernel).
func parseXFS(b []byte) (superblock, error) {
	if len(b) < superblockBytes {
		return superblock{}, io.ErrUnexpectedEOF
	}
	be := binary.BigEndian
	if string(b[:4]) != "XFSB" {
		return superblock{}, errors.New("no magic number")
	}
	size, err := multiply(be.Uint64(b[8:]), uint64(be.Uint32(b[4:])))
	// mkfs makes one chunk of 64 inodes; xfs has no record of its mounts.
	return superblock{size, be.Uint64(b[128:]) <= 64}, err
}

func multiply(blocks, size uint64) (int64, error) {
	hi, lo := bits.Mul64(blocks, size)
	if hi != 0 || lo == 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("a size of %d blocks of %d bytes", blocks, size)
	}
	return int64(lo), nil
}
