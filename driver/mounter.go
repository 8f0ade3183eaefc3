package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/lab"
)

// nothingFound turns the fault "the probe tool exits with 2 and says nothing" into what
// it would look like: a probe that found nothing. Proof that it is a lie is up to what comes after it.
func nothingFound(err error) error {
	if f := lab.AsError(err); f != nil && f.Action == lab.Fail && f.Code == "2" {
		return nil
	}
	return err
}

// tool is a program that the driver runs, and where it comes from.
type tool struct{ name, from string }

var (
	toolBlkid      = tool{"blkid", "util-linux"}
	toolE2fsck     = tool{"e2fsck", "e2fsprogs"}
	toolResize2fs  = tool{"resize2fs", "e2fsprogs"}
	toolMkfsExt4   = tool{"mkfs.ext4", "e2fsprogs"}
	toolXfsRepair  = tool{"xfs_repair", "xfsprogs"}
	toolXfsGrowfs  = tool{"xfs_growfs", "xfsprogs"}
	toolDirs       = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} // a user's PATH may lack them
	toolComplaints = 300
)

func mkfs(fs FSType) tool {
	if fs == "xfs" {
		return tool{"mkfs.xfs", "xfsprogs"}
	}
	return tool{"mkfs." + string(fs), "e2fsprogs"}
}

func (t tool) path() (string, error) {
	p, err := exec.LookPath(t.name)
	if err == nil {
		return p, nil
	}
	for _, dir := range toolDirs {
		if p, err := exec.LookPath(filepath.Join(dir, t.name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; install package %s", t.name, t.from)
}

// result of a tool that ran to its end.
type result struct {
	exit           int
	stdout, stderr string
}

func (r result) String() string {
	text := strings.Join(strings.Fields(r.stderr+" "+r.stdout), " ")
	if len(text) > toolComplaints {
		text = text[:toolComplaints] + " ..."
	}
	return fmt.Sprintf("exit code %d: %s", r.exit, text)
}

// run runs a tool. An error means that it did not run to its end.
func (t tool) run(ctx context.Context, args ...string) (result, error) {
	path, err := t.path()
	if err != nil {
		return result{}, err
	}
	var out, complaints strings.Builder
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = runTied(cmd)
	r := result{cmd.ProcessState.ExitCode(), out.String(), complaints.String()}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return r, fmt.Errorf("%s: %w", t.name, context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited():
		return r, nil
	}
	return r, fmt.Errorf("%s: %w: %s", t.name, err, r)
}
