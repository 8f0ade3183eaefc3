package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Status is what "drydock status" shows.
type Status struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	PID     int             `json:"pid"`
	State   string          `json:"state"`
	URL     string          `json:"url"`
	Devices string          `json:"devices"`
	Reason  string          `json:"reason"`
	Driver  string          `json:"driver"`
	Started time.Time       `json:"started"`
	Ready   bool            `json:"ready"`
	Nodes   []NodeStatus    `json:"nodes"`
	Parts   map[string]bool `json:"components"`
	Volumes int             `json:"volumes"`
	Pods    int             `json:"pods"`
}

// NodeStatus is a node in a Status.
type NodeStatus struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Driver   bool   `json:"driver"` // the driver is registered
	Attached int    `json:"attached"`
}

// Status tells how the cluster is doing.
func (c *Cluster) Status(ctx context.Context) Status {
	s := Status{
		Name: c.opts.Name, Version: c.opts.Version, PID: os.Getpid(), State: c.opts.State, URL: c.URL(), Devices: string(c.Mode),
		Reason: c.Reason, Driver: c.opts.Driver, Started: c.started, Parts: c.parts.up(),
	}
	registered := map[string]bool{}
	if list, err := c.client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, n := range list.Items {
			for _, d := range n.Spec.Drivers {
				registered[n.Name] = registered[n.Name] || d.Name == c.opts.Driver
			}
		}
	}
	ready := map[string]corev1.Node{}
	if list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, n := range list.Items {
			ready[n.Name] = n
		}
	}
	s.Ready = true
	for _, name := range c.NodeNames() {
		n := NodeStatus{Name: name, Ready: c.isReady(ready[name]), Driver: registered[name], Attached: len(ready[name].Status.VolumesAttached)}
		s.Ready = s.Ready && n.Ready && n.Driver
		s.Nodes = append(s.Nodes, n)
	}
	if list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}); err == nil {
		s.Volumes = len(list.Items)
	}
	if list, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err == nil {
		s.Pods = len(list.Items)
	}
	return s
}

// isReady believes only what a kubelet of this life reported: the condition of an earlier one is still stored.
func (c *Cluster) isReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(x corev1.NodeCondition) bool {
		return x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue && !x.LastHeartbeatTime.Time.Before(c.started.Truncate(time.Second))
	})
}

// asReadyAsCanBe expects nothing of nodes that a fault keeps from being ready.
func (c *Cluster) asReadyAsCanBe(s Status) bool {
	return !slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return !(n.Ready && n.Driver) && !c.machines[n.Name].impaired() })
}

// WaitReady blocks until every node is ready and has the driver registered, but for those that a NodeFault impairs.
func (c *Cluster) WaitReady(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := c.client.CoreV1().Nodes().Watch(watching, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("wait for the nodes: %w", err)
	}
	defer nodes.Stop()
	csi, err := c.client.StorageV1().CSINodes().Watch(watching, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("wait for the nodes: %w", err)
	}
	defer csi.Stop()
	for {
		s := c.Status(ctx)
		if c.asReadyAsCanBe(s) {
			return nil
		}
		var open bool
		select {
		case _, open = <-nodes.ResultChan():
		case _, open = <-csi.ResultChan():
		case <-ctx.Done():
			return fmt.Errorf("wait for the nodes: %w; not ready: %v", ctx.Err(), s.Nodes)
		}
		if !open {
			return c.WaitReady(ctx) // a watch ended; begin with new ones
		}
		drain(nodes)
		drain(csi)
	}
}

// drain takes what has arrived meanwhile: one look serves all of it.
func drain(w watch.Interface) {
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
		default:
			return
		}
	}
}
