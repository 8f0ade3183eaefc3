package cluster

import (
	"net/http"

	"drydock.dev/drydock/apiserverlite/server"
)

// kubelet is what the API server finds at the end of /api/v1/nodes/{node}/proxy: nothing, if the kubelet is stopped, cut off or without power.
func (c *Cluster) kubelet(node string) (http.Handler, error) {
	m := c.machines[node]
	if m == nil {
		return nil, server.ErrNoKubelet
	}
	m.mu.Lock()
	kubelet, off := m.kubelet, m.off
	m.mu.Unlock()
	if kubelet == nil || off || m.line.IsCut() {
		return nil, server.ErrNoKubelet
	}
	return kubelet.Handler(), nil
}
