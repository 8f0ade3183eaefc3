package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// inside does to a pod's volume what a program in the pod would.
func (s *story) inside(_ *testscript.TestScript, args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	p, err := s.place(args[0], args[1])
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(p.path)
	if err != nil {
		return err
	}
	defer root.Close()
	what, args := args[2], args[3:]
	switch {
	case what == "mkdir" && len(args) == 1:
		return root.MkdirAll(args[0], 0o755)
	case what == "remove" && len(args) == 1:
		return root.RemoveAll(args[0])
	case what == "chmod" && len(args) == 2:
		mode, err := strconv.ParseUint(args[0], 8, 32)
		if err != nil {
			return err
		}
		// Through the path: Go's own mode has the set-gid bit elsewhere.
		return chmod(filepath.Join(p.path, args[1]), uint32(mode))
	case what == "fill" && len(args) == 2:
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		for i := range n {
			f, err := root.Create(filepath.Join(args[0], strconv.Itoa(i)))
			if err != nil {
				return err
			}
			f.Close()
		}
		return nil
	case what == "shutdown" && len(args) == 0:
		return shutdown(p.path)
	}
	return errUsage
}

// expectFile compares the owner's group and the mode of a file in a pod's volume.
func (s *story) expectFile(args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	o, err := options(args[3:], "group", "mode")
	if err != nil {
		return err
	}
	p, err := s.place(args[0], args[1])
	if err != nil {
		return err
	}
	path := filepath.Join(p.path, args[2])
	fi, err := os.Stat(path)
	if os.IsNotExist(err) {
		return notSof("%s does not exist", path)
	}
	if err != nil {
		return err
	}
	group, mode := groupAndMode(fi)
	if o["group"] != "" && o["group"] != fmt.Sprint(group) {
		return notSof("its group is %d", group)
	}
	if o["mode"] != "" && o["mode"] != fmt.Sprintf("%04o", mode) {
		return notSof("its mode is %04o", mode)
	}
	return nil
}
