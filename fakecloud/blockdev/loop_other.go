//go:build !linux

package blockdev

// NewLoop fails: loop devices are Linux's. NewSim works everywhere.
func NewLoop(string, Options) (Backend, error) { return nil, ErrUnsupported }
