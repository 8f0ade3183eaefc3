package cluster

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/host"
)

// shareKubelet makes a node's kubelet directory a mount that passes on what is mounted
// below it, to and from the programs that "drydock node exec" runs in mount namespaces of their own.
func (c *Cluster) shareKubelet(n string) error {
	if c.Mode != host.Loop {
		return nil
	}
	dir := c.Layout.Kubelet(n)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = unix.Mount(dir, dir, "", unix.MS_BIND, "")
	}
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_SHARED, "")
	}
	if err != nil {
		return fmt.Errorf("share the kubelet directory of node %s: %w", n, err)
	}
	return nil
}

// forgetMounts takes away what is mounted on a node, as loss of power does.
func (c *Cluster) forgetMounts(n string) error {
	if t := c.tables[n]; t != nil {
		return t.Clear()
	}
	return unmountBelow(c.Layout.Kubelet(n))
}
