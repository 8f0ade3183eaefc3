//go:build !linux

package mounts

import "k8s.io/mount-utils"

// New returns the system's mount table; mount-utils knows none outside Linux and Windows.
func New() mount.Interface { return mount.New("") }
