package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumemanager"
)

// Version is the kubelet version that the node reports.
const Version = "v1.37.2"

const (
	nodeMemory     = 8 << 30
	nodePods       = "1000"
	leaseDuration  = 40 // seconds
	leaseRenewal   = 10 * time.Second
	statusReport   = 5 * time.Minute
	leaseNamespace = "kube-node-lease"
)

// register brings the node up in the API, and then keeps its lease and status.
func (l *life) register(ctx context.Context) {
	var node *v1.Node
	ok := l.insist(ctx, "register node", func() (err error) {
		node, err = l.registerNode(ctx)
		return err
	})
	if !ok {
		return
	}
	l.own.set(node)
	// What the life before reported is in use until the volumes on disk are known.
	l.volumes.TakeOver(node.Status.VolumesInUse)
	l.volumes.NodeChanged()
	l.point(pointRegistered)
	var wg sync.WaitGroup
	defer wg.Wait() // also when this goroutine ends at a kill point
	wg.Go(func() { l.keepLease(ctx) })
	if l.insist(ctx, "make CSINode", func() error { return l.nodeInfo.Initialize(ctx) }) {
		l.keepStatus(ctx)
	}
}

// registerNode creates the Node, or puts what is ours on the one that is there.
func (l *life) registerNode(ctx context.Context) (*v1.Node, error) {
	labels := map[string]string{
		v1.LabelHostname: l.c.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, l.c.Labels)
	annotations := map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	nodes := l.client.CoreV1().Nodes()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.c.Name, Labels: labels, Annotations: annotations}}
	node.Status = l.status(nil, "kubelet is starting: CSINode is not yet initialized")
	node, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		if err != nil {
			return nil, err
		}
		return nodes.Patch(ctx, l.c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return node, err
}

// registerAgain registers on a Node that is not the one of before, with the drivers there are.
func (l *life) registerAgain(ctx context.Context) error {
	node, err := l.registerNode(ctx)
	if err != nil {
		return err
	}
	l.own.set(node)
	l.volumes.NodeChanged()
	l.workers.Go(func() { // drivers may take their time, or be dead
		if err := l.nodeInfo.Initialize(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn().Err(err).Msg("make CSINode again")
		}
		for _, driver := range l.csi.Names() {
			if err := l.known.Introduce(ctx, driver); err != nil && ctx.Err() == nil {
				l.log.Warn().Err(err).Str("driver", driver).Msg("introduce a driver to the node that was registered again")
			}
		}
	})
	return nil
}

// status is what the kubelet says of the node. NotReady is the reason if it is not ready.
// The times of last transition are taken from have where nothing changed.
func (l *life) status(have []v1.NodeCondition, notReady string) v1.NodeStatus {
	now := metav1.NewTime(l.clock.Now())
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if notReady != "" {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", notReady
	}
	conditions := []v1.NodeCondition{
		{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		ready,
	}
	for i := range conditions {
		c := &conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		if j := slices.IndexFunc(have, func(h v1.NodeCondition) bool { return h.Type == c.Type }); j >= 0 && have[j].Status == c.Status {
			c.LastTransitionTime = have[j].LastTransitionTime
		}
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("4"),
		v1.ResourceMemory:           *resource.NewQuantity(nodeMemory, resource.BinarySI),
		v1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		v1.ResourcePods:             resource.MustParse(nodePods),
	}
	return v1.NodeStatus{
		Capacity: capacity, Allocatable: capacity, Conditions: conditions,
		// As the status of containers says of their mounts.
		RuntimeHandlers: []v1.NodeRuntimeHandler{{Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true), UserNamespaces: new(false)}}},
		Features:        &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)},
		Addresses:       []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: l.ips.node()}, {Type: v1.NodeHostName, Address: l.c.Name}},
		NodeInfo: v1.NodeSystemInfo{
			MachineID: systemID(l.c.Name), SystemUUID: systemID(l.c.Name), BootID: l.bootID, KernelVersion: kernelVersion(), OSImage: "drydock simulated node",
			ContainerRuntimeVersion: "drydock://1", KubeletVersion: Version, KubeProxyVersion: "", OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
	}
}

// keepStatus reports the status now, every five minutes and when the node was called
// silent, and volumesInUse as soon as it changes. Before the volumes on disk are known the list is left as it was.
// A Node that somebody has deleted is registered again, if nobody else did so, and told all that the one before knew.
func (l *life) keepStatus(ctx context.Context) {
	// The timer of the report runs across changes of volumesInUse.
	due := l.clock.Now()
	var reported []volumemanager.UniqueName
	known, anew, told := false, false, l.own.uid()
	for ctx.Err() == nil {
		if uid := l.own.uid(); anew || uid != told {
			if !l.insist(ctx, "register node again", func() error { return l.registerAgain(ctx) }) {
				return
			}
			known, due, told = false, l.clock.Now(), l.own.uid()
		}
		anew = false
		changed := l.volumes.InUseChanged()
		now := l.clock.Now()
		patch := map[string]any{}
		if report := !now.Before(due) || l.own.silent(); report {
			var have []v1.NodeCondition
			if n := l.own.get(); n != nil {
				have = n.Status.Conditions
			}
			if err := merge(patch, l.status(have, "")); err != nil {
				l.log.Error().Err(err).Msg("encode node status")
			}
		}
		synced := l.volumes.Synced()
		inUse := l.volumes.InUse()
		if synced && (!known || !slices.Equal(inUse, reported)) {
			patch["volumesInUse"] = inUse
			if len(inUse) == 0 {
				patch["volumesInUse"] = nil
			}
		} else if synced {
			// A volume may be wanted anew that is still listed for the pod before: it must hear so, for there is nothing to write.
			l.volumes.MarkReported(reported)
		}
		if len(patch) > 0 {
			ok := l.insist(ctx, "write node status", func() error {
				err := l.patchStatus(ctx, patch)
				if anew = apierrors.IsNotFound(err); anew {
					return nil
				}
				return err
			})
			if !ok {
				return
			}
			if anew {
				continue
			}
			if _, wrote := patch["conditions"]; wrote {
				due = now.Add(statusReport)
			}
			if _, wrote := patch["volumesInUse"]; wrote {
				reported, known = inUse, true
			}
		}
		t := l.clock.NewTimer(due.Sub(l.clock.Now()))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-l.doubted:
		case <-t.C():
		}
		t.Stop()
	}
}

// merge adds the JSON fields of status to patch.
func merge(patch map[string]any, status v1.NodeStatus) error {
	b, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &patch)
}

// patchStatus writes part of the status, and tells the volume manager what is listed as in use now.
func (l *life) patchStatus(ctx context.Context, status map[string]any) error {
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	node, err := l.client.CoreV1().Nodes().Patch(ctx, l.c.Name, types.StrategicMergePatchType, b, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", l.c.Name, err)
	}
	l.point(pointInUse)
	l.volumes.MarkReported(node.Status.VolumesInUse)
	return nil
}

// keepLease renews the node's lease.
func (l *life) keepLease(ctx context.Context) {
	var held *coordv1.Lease
	for ctx.Err() == nil {
		lease, err := l.renewLease(ctx, held)
		if err != nil && ctx.Err() == nil {
			l.log.Warn().Err(err).Msg("renew node lease")
		}
		held = lease // nil after an error: it is read again
		l.sleep(ctx, nil, leaseRenewal)
	}
}

// renewLease renews the lease as it was last written, or else as the API has it, or makes it.
func (l *life) renewLease(ctx context.Context, held *coordv1.Lease) (*coordv1.Lease, error) {
	leases := l.client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NewMicroTime(l.clock.Now())
	if held == nil {
		lease, err := leases.Get(ctx, l.c.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return l.createLease(ctx, now)
		}
		if err != nil {
			return nil, err
		}
		held = lease.DeepCopy()
	}
	held.Spec.RenewTime = &now
	lease, err := leases.Update(ctx, held, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return lease.DeepCopy(), nil
}

func (l *life) createLease(ctx context.Context, now metav1.MicroTime) (*coordv1.Lease, error) {
	seconds := int32(leaseDuration)
	lease := &coordv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.c.Name, Namespace: leaseNamespace},
		Spec:       coordv1.LeaseSpec{HolderIdentity: &l.c.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	if uid := l.own.uid(); uid != "" {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.c.Name, UID: uid}}
	}
	return l.client.CoordinationV1().Leases(leaseNamespace).Create(ctx, lease, metav1.CreateOptions{})
}
