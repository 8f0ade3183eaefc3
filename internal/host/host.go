// Package host finds out what this machine lets a process do with devices and
// mounts, and what follows from it. It changes nothing that outlives the call.
package host

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Mode is how devices and mounts are made.
type Mode string

// The modes. Auto is a wish only; Decide turns it into one of the others.
const (
	Auto Mode = "auto"
	Loop Mode = "loop" // loop devices, mkfs, mount
	Sim  Mode = "sim"  // simulated devices and mounts
)

// ParseMode reads a --devices value.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, Loop, Sim:
		return m, nil
	}
	return "", fmt.Errorf("devices %q: must be auto, loop or sim", s)
}

// Finding is one thing that was looked at.
type Finding struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail says what was found.
	Detail string `json:"detail"`
	// Means says what follows when it is missing, and what to do.
	Means string `json:"means,omitempty"`
	// Needed marks what real devices cannot do without.
	Needed bool `json:"needed,omitempty"`
}

// Report is the whole examination.
type Report struct {
	OS       string    `json:"os"`
	Findings []Finding `json:"findings"`
}

// tools are the programs that are called, with what is lost without each.
var tools = []struct{ name, pkg, lost string }{
	{"mkfs.ext4", "e2fsprogs", "no ext4 volumes on real devices"},
	{"blkid", "util-linux", "a device cannot be proven blank, so nothing is formatted on real devices"},
	{"fsck", "util-linux", "filesystems are mounted without a check"},
	{"resize2fs", "e2fsprogs", "ext4 volumes do not grow"},
	{"mkfs.xfs", "xfsprogs", "no xfs volumes on real devices"},
	{"xfs_growfs", "xfsprogs", "xfs volumes do not grow"},
	{"mkfs.btrfs", "btrfs-progs", "no btrfs volumes on real devices"},
}

// Examine looks at the machine.
func Examine() Report {
	r := Report{OS: runtime.GOOS + "/" + runtime.GOARCH}
	add := func(f Finding) { r.Findings = append(r.Findings, f) }
	linux := runtime.GOOS == "linux"
	add(Finding{Name: "Linux", OK: linux, Needed: true, Detail: r.OS, Means: "devices are simulated on this system"})
	uid := os.Geteuid()
	add(Finding{Name: "root", OK: uid == 0, Needed: true, Detail: fmt.Sprintf("user id %d", uid), Means: "devices are simulated; run as root for real ones"})
	if linux {
		for _, f := range kernel() {
			add(f)
		}
	}
	for _, t := range tools {
		path, err := find(t.name)
		f := Finding{Name: t.name, OK: err == nil, Detail: path, Needed: t.name == "mkfs.ext4" || t.name == "blkid",
			Means: t.lost + "; install " + t.pkg}
		if err != nil {
			f.Detail = "not found on PATH"
		}
		add(f)
	}
	return r
}

// find looks on PATH and where administrators' tools lie, which is not on every user's PATH.
func find(tool string) (string, error) {
	path, err := exec.LookPath(tool)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p, err := exec.LookPath(dir + "/" + tool); err == nil {
			return p, nil
		}
	}
	return "", err
}

// Missing lists what real devices need and this machine lacks.
func (r Report) Missing() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.OK || !f.Needed })
}

// Decide turns the wish into a mode and says why in one line. It refuses a wish that cannot be had.
func (r Report) Decide(wish Mode) (Mode, string, error) {
	missing := r.Missing()
	var why []string
	for _, f := range missing {
		why = append(why, fmt.Sprintf("%s: %s", f.Name, f.Detail))
	}
	switch {
	case wish == Sim:
		return Sim, "devices are simulated, as asked", nil
	case len(missing) == 0:
		return Loop, "real loop devices and filesystems", nil
	case wish == Loop:
		return "", "", fmt.Errorf("real devices cannot be had here (%s): %s; use --devices sim, or see \"drydock doctor\"",
			strings.Join(why, "; "), missing[0].Means)
	default:
		return Sim, "devices are simulated here (" + strings.Join(why, "; ") + ")", nil
	}
}
