package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const loopMajor = 7 // of loop devices, in Documentation/admin-guide/devices.txt

// backingFile is the path of the file behind a loop device; false for other devices.
func backingFile(dev uint64) (string, bool) {
	if unix.Major(dev) != loopMajor {
		return "", false
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(dev), unix.Minor(dev)))
	return strings.TrimSpace(string(b)), err == nil
}

// loopOwner is the volume whose file is behind a loop device: the fake cloud names
// the file for it, which serves as the disk's serial number. It is unknown for other devices.
func loopOwner(dev uint64) (VolumeID, bool) {
	path, ok := backingFile(dev)
	name, isImage := strings.CutSuffix(filepath.Base(strings.TrimSuffix(path, " (deleted)")), ".img")
	return VolumeID(name), ok && isImage
}

// hollow tells whether the device is known to read as zeros from end to end, because
// it is a loop device over a sparse file in which nothing was ever written. That is
// more than blkid and samples can tell, and costs no reading. Where it cannot be known it is false.
func hollow(d *device) bool {
	fd := int(d.file.Fd())
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	path, ok := backingFile(st.Rdev)
	if !ok {
		return false
	}
	behind, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Ino != behind.Inode || st.Dev != behind.Device {
		return false // another file has taken the name
	}
	// What was written to the device and is not in the file yet counts.
	if unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER) != nil {
		return false
	}
	first, told, err := firstExtent(f)
	return err == nil && told && first < 0
}

// firstExtent returns where a sparse file has its first data, -1 if it has none.
func firstExtent(f *os.File) (off int64, told bool, err error) {
	off, err = unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return -1, true, nil
	}
	if err != nil {
		return 0, false, nil // not every filesystem can tell
	}
	return off, true, nil
}
