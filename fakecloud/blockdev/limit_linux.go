package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limit implements Devices: by the io controller of the control group that this
// process and what it starts are in. Others on the machine are not bound by it.
func (l *Loop) Limit(ctx context.Context, v Volume, limit Limit) (Limited, error) {
	unlock, err := l.lock(ctx, v.ID)
	if err != nil {
		return Limited{}, fmt.Errorf("limit volume %s: %w", v.Name, err)
	}
	defer unlock()
	a := l.attachment(v.ID)
	if a == nil {
		return Limited{Why: "the volume is not attached"}, nil
	}
	device, err := deviceNumber(a.hold)
	if err != nil {
		return Limited{}, fmt.Errorf("limit volume %s: %w", v.Name, err)
	}
	if _, err = l.op(ctx, "limit", v, a.node(), func() error { return here.throttle(device, limit) }); err != nil {
		return Limited{Why: err.Error()}, nil
	}
	a.limited = limit != Limit{}
	return Limited{Applied: true}, nil
}

// lift takes the limit off a device that is about to go: its number outlives it.
func (l *Loop) lift(a *attachment) {
	if !a.limited {
		return
	}
	if device, err := deviceNumber(a.hold); err == nil {
		_ = here.throttle(device, Limit{})
	}
}

// liftUnbound takes the limits off loop devices that stand for nothing: a killed
// process could not, and whoever gets the number next would inherit them.
func liftUnbound() {
	for _, device := range here.throttled() {
		if n, ok := strings.CutPrefix(device, strconv.Itoa(loopMajor)+":"); ok {
			if i, err := strconv.Atoi(n); err == nil && !bound(i) {
				_ = here.throttle(device, Limit{})
			}
		}
	}
}

func deviceNumber(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}

// groups is where control groups are found.
type groups struct{ self, root string }

var here = groups{"/proc/self/cgroup", "/sys/fs/cgroup"}

// controller finds this process's io controller: the file of version 2, or the
// directory of version 1.
func (g groups) controller() (file, dir string, err error) {
	b, err := os.ReadFile(g.self)
	if err != nil {
		return "", "", fmt.Errorf("this system has no control groups: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[1] == "":
			if path := filepath.Join(g.root, f[2], "io.max"); exists(path) {
				return path, "", nil
			}
		case strings.Contains(","+f[1]+",", ",blkio,"):
			if path := filepath.Join(g.root, "blkio", f[2]); exists(filepath.Join(path, "blkio.throttle.read_iops_device")) {
				return "", path, nil
			}
		}
	}
	return "", "", errors.New("this process's control group has no io controller")
}

// throttle limits a device.
func (g groups) throttle(device string, l Limit) error {
	file, dir, err := g.controller()
	if err != nil {
		return err
	}
	if file != "" {
		return put(file, device+" riops="+most(l.IOPS)+" wiops="+most(l.IOPS)+" rbps="+most(l.Bytes)+" wbps="+most(l.Bytes))
	}
	var errs []error
	for name, n := range map[string]int64{"read_iops": l.IOPS, "write_iops": l.IOPS, "read_bps": l.Bytes, "write_bps": l.Bytes} {
		errs = append(errs, put(filepath.Join(dir, "blkio.throttle."+name+"_device"), device+" "+strconv.FormatInt(n, 10)))
	}
	return errors.Join(errs...)
}

// throttled lists the devices that have a limit.
func (g groups) throttled() (out []string) {
	file, dir, err := g.controller()
	files := []string{file}
	if dir != "" {
		files, _ = filepath.Glob(filepath.Join(dir, "blkio.throttle.*_device"))
	}
	if err != nil {
		return nil
	}
	for _, path := range files {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if device, _, ok := strings.Cut(line, " "); ok && !slices.Contains(out, device) {
				out = append(out, device)
			}
		}
	}
	return out
}

func most(n int64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

func put(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
