package scenario

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// unplug pulls a disk out of its node, and tells nobody in the cluster.
func (s *story) unplug(_ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	ctx, cancel := s.limit()
	defer cancel()
	return s.world.Unplug(ctx, args[0], args[1])
}

// host is a world whose nodes take programs of others.
type host interface {
	// Guest runs a CSI driver on a node that is not drydock's, and returns when it is registered.
	Guest(node string) error
}

func (s *story) guest(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	h, ok := s.world.(host)
	if !ok {
		return errors.New("this world takes no guests")
	}
	return h.Guest(args[0])
}

// rounds lets an object come up and go, so many times.
func (s *story) rounds(ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for i := range n {
		err := s.apply(ts, args[1:2])
		if err == nil {
			err = s.wait(ts, []string{args[2], "running"})
		}
		if err == nil {
			err = s.delete(ts, []string{args[2]})
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}
