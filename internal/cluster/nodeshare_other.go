//go:build !linux

package cluster

func (c *Cluster) shareKubelet(string) error { return nil }

// forgetMounts takes away what is mounted on a node, as loss of power does.
func (c *Cluster) forgetMounts(n string) error { return c.tables[n].Clear() }
