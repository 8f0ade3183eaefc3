//go:build !linux

package cluster

// powerOff forgets the simulated mounts, as switching a machine off does.
func (c *Cluster) powerOff() error { return c.clearTables() }
