package pluginmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	nodeIDAnnotation   = "csi.volume.kubernetes.io/nodeid"
	migratedAnnotation = "storage.alpha.kubernetes.io/migrated-plugins"
	// migrated names the in-tree plugins whose volumes a CSI driver serves; the kubelet lists them on each node.
	migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
)

// NodeInfo writes what drivers say about a node to the Node and CSINode objects.
type NodeInfo struct {
	Client kubernetes.Interface
	Name   string
	// Retry runs a write until it succeeds, a few times.
	Retry func(ctx context.Context, try func() error) error

	mu sync.Mutex // one change of the two objects at a time
}

// Initialize makes sure that the CSINode exists, belongs to this Node and lists the migrated plugins.
func (n *NodeInfo) Initialize(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, err := n.csiNode(ctx)
	if err != nil {
		return err
	}
	if c.Annotations[migratedAnnotation] == migrated {
		return nil
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, migratedAnnotation, migrated)
	_, err = n.Client.StorageV1().CSINodes().Update(ctx, c, metav1.UpdateOptions{})
	return err
}

// csiNode returns the CSINode of this Node, made anew if there is none or if it belonged to an earlier Node of this name.
func (n *NodeInfo) csiNode(ctx context.Context) (*storagev1.CSINode, error) {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c, err := n.Client.StorageV1().CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err == nil {
		if slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" && r.UID == node.UID }) {
			return c, nil
		}
		if err := n.Client.StorageV1().CSINodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	return n.Client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name:            n.Name,
		Annotations:     map[string]string{migratedAnnotation: migrated},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}, metav1.CreateOptions{})
}

// Install writes a driver's answer to the Node, calls between, and then to CSINode.
func (n *NodeInfo) Install(ctx context.Context, driver string, info *csipb.NodeGetInfoResponse, between func()) error {
	if info.NodeId == "" {
		return errors.New("error adding CSI driver node info: driverNodeID must not be empty")
	}
	err := n.patchNode(ctx, func(node *v1.Node, ids map[string]string) (map[string]string, error) {
		labels := info.GetAccessibleTopology().GetSegments()
		for k, v := range labels {
			if have, ok := node.Labels[k]; ok && have != v {
				return nil, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", k, v, k, have)
			}
		}
		ids[driver] = info.NodeId
		return labels, nil
	})
	if err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	between()
	return n.update(ctx, driver, info)
}

// Uninstall takes a driver off CSINode and its id off the Node.
func (n *NodeInfo) Uninstall(ctx context.Context, driver string) error {
	if err := n.changeDrivers(ctx, func(list []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return slices.DeleteFunc(list, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("error uninstalling CSI driver from CSINode object: %w", err)
	}
	if err := n.patchNode(ctx, func(_ *v1.Node, ids map[string]string) (map[string]string, error) {
		delete(ids, driver)
		return nil, nil
	}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("error removing CSI driver node info from Node object: %w", err)
	}
	return nil
}

// patchNode changes the map of node ids, and adds labels.
func (n *NodeInfo) patchNode(ctx context.Context, change func(*v1.Node, map[string]string) (map[string]string, error)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Retry(ctx, func() error {
		node, err := n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ids := map[string]string{}
		if s := node.Annotations[nodeIDAnnotation]; s != "" {
			if err := json.Unmarshal([]byte(s), &ids); err != nil {
				return fmt.Errorf("parse annotation %s of node %s: %w", nodeIDAnnotation, n.Name, err)
			}
		}
		before := maps.Clone(ids)
		labels, err := change(node, ids)
		if err != nil {
			return err
		}
		missing := map[string]string{}
		for k, v := range labels {
			if node.Labels[k] != v {
				missing[k] = v
			}
		}
		if maps.Equal(before, ids) && len(missing) == 0 {
			return nil
		}
		return n.sendPatch(ctx, ids, missing)
	})
}

func (n *NodeInfo) sendPatch(ctx context.Context, ids, labels map[string]string) error {
	var value any // null removes the annotation
	if len(ids) > 0 {
		b, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		value = string(b)
	}
	meta := map[string]any{"annotations": map[string]any{nodeIDAnnotation: value}}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	b, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = n.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

// update enters a driver's answer into CSINode.
func (n *NodeInfo) update(ctx context.Context, driver string, info *csipb.NodeGetInfoResponse) error {
	entry := storagev1.CSINodeDriver{Name: driver, NodeID: info.NodeId, Allocatable: allocatable(info.MaxVolumesPerNode)}
	for k := range info.GetAccessibleTopology().GetSegments() {
		entry.TopologyKeys = append(entry.TopologyKeys, k)
	}
	slices.Sort(entry.TopologyKeys)
	err := n.changeDrivers(ctx, func(list []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		list = slices.DeleteFunc(list, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
		return append(list, entry)
	})
	if err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

// allocatable: zero means no limit, a negative count nothing, and a huge one is clipped.
func allocatable(count int64) *storagev1.VolumeNodeResources {
	if count <= 0 {
		return nil
	}
	c := int32(min(count, math.MaxInt32))
	return &storagev1.VolumeNodeResources{Count: &c}
}

func (n *NodeInfo) changeDrivers(ctx context.Context, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Retry(ctx, func() error {
		c, err := n.csiNode(ctx)
		if err != nil {
			return err
		}
		before := slices.Clone(c.Spec.Drivers)
		c.Spec.Drivers = change(c.Spec.Drivers)
		if equalDrivers(before, c.Spec.Drivers) {
			return nil
		}
		_, err = n.Client.StorageV1().CSINodes().Update(ctx, c, metav1.UpdateOptions{})
		return err
	})
}

func equalDrivers(a, b []storagev1.CSINodeDriver) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x storagev1.CSINodeDriver) bool {
		return !slices.ContainsFunc(b, func(y storagev1.CSINodeDriver) bool { return equalDriver(x, y) })
	})
}

func equalDriver(a, b storagev1.CSINodeDriver) bool {
	count := func(d storagev1.CSINodeDriver) int32 {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			return -1
		}
		return *d.Allocatable.Count
	}
	return a.Name == b.Name && a.NodeID == b.NodeID && slices.Equal(a.TopologyKeys, b.TopologyKeys) && count(a) == count(b)
}
