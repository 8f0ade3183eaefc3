package driver

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// The format mark is a block on the device itself. It says: this volume was proven
// blank, and is being formatted; nothing on it is anybody's. It is written before
// mkfs and erased before the first mount, so it goes where the volume goes, and a
// format that was cut short on one node can be taken up on another.
//
// It lies in a place that a fresh ext or xfs filesystem leaves alone: well inside
// a block group, away from the quarters of the device and from its middle.
const (
	markSize  = 4096
	markMagic = "drydock: this volume is being formatted, and holds no data yet\n"
)

func markOffset(size int64) int64 {
	eighths := size / 8 * 3
	if size >= 4*extGroup {
		return eighths/extGroup*extGroup + extGroup*3/4
	}
	return eighths / markSize * markSize
}

type formatMark struct {
	volume VolumeID
	fs     FSType
}

// block is the mark as it is written.
func (m formatMark) block() []byte {
	text := fmt.Sprintf("%svolume %s\nfilesystem %s\n", markMagic, m.volume, m.fs)
	text += fmt.Sprintf("crc32 %08x\n", crc32.ChecksumIEEE([]byte(text)))
	return append([]byte(text), make([]byte, markSize-len(text))...)
}

// parseMark reads a block; false if it is not a whole mark.
func parseMark(b []byte) (formatMark, bool) {
	if len(b) != markSize || !bytes.HasPrefix(b, []byte(markMagic)) {
		return formatMark{}, false
	}
	var m formatMark
	for line := range strings.Lines(string(b[len(markMagic):])) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "volume":
			m.volume = VolumeID(value)
		case "filesystem":
			m.fs = FSType(value)
		}
	}
	// Every byte counts: what is not exactly what block writes is not a mark.
	if !known(m.volume) || !known(m.fs) || !bytes.Equal(b, m.block()) {
		return formatMark{}, false
	}
	return m, true
}

// readMark returns the filesystem of the volume's own mark, empty if there is none.
func readMark(r io.ReaderAt, size int64, id VolumeID) (FSType, error) {
	b := make([]byte, markSize)
	if _, err := r.ReadAt(b, markOffset(size)); err != nil {
		return "", fmt.Errorf("read the place of the format mark: %w", err)
	}
	if m, ok := parseMark(b); ok && m.volume == id {
		return m.fs, nil
	}
	return "", nil
}
