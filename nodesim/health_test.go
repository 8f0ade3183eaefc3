package nodesim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// illness is what a guest says is wrong.
type illness struct {
	mu        sync.Mutex
	volume    []*csipb.VolumeHealth_VolumeHealthEntry                    // guarded by mu
	storage   []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth // guarded by mu
	condition string                                                     // guarded by mu: abnormal, in the words of CSI up to 1.12; empty is normal
	asked     []*csipb.NodeGetVolumeHealthRequest                        // guarded by mu
	err       error                                                      // guarded by mu
}

func (i *illness) set(f func(*illness)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i)
}

func (g *guest) NodeGetVolumeHealth(_ context.Context, r *csipb.NodeGetVolumeHealthRequest) (*csipb.NodeGetVolumeHealthResponse, error) {
	g.ill.mu.Lock()
	defer g.ill.mu.Unlock()
	g.ill.asked = append(g.ill.asked, r)
	return &csipb.NodeGetVolumeHealthResponse{VolumeHealth: &csipb.VolumeHealth{VolumeId: r.VolumeId, HealthStatuses: slices.Clone(g.ill.volume)}}, g.ill.err
}

func (g *guest) NodeGetStorageHealth(context.Context, *csipb.NodeGetStorageHealthRequest) (*csipb.NodeGetStorageHealthResponse, error) {
	g.ill.mu.Lock()
	defer g.ill.mu.Unlock()
	return &csipb.NodeGetStorageHealthResponse{BackendHealth: slices.Clone(g.ill.storage)}, nil
}

// NodeGetVolumeStats answers as a driver does that was built on CSI 1.12.
func (g *guest) NodeGetVolumeStats(context.Context, *csipb.NodeGetVolumeStatsRequest) (*csipb.NodeGetVolumeStatsResponse, error) {
	g.ill.mu.Lock()
	defer g.ill.mu.Unlock()
	abnormal := uint64(0)
	if g.ill.condition != "" {
		abnormal = 1
	}
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), abnormal)
	inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), g.ill.condition)
	r := &csipb.NodeGetVolumeStatsResponse{}
	r.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner))
	return r, nil
}

// healthOf is what the pod says of its volumes.
func (w *world) healthOf(name string) []v1.PodVolumeHealth {
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p.Status.VolumeHealth
}

// waitHealth waits until the pod says that of its one volume: STATUS/REASON/MESSAGE of each condition.
func (w *world) waitHealth(name string, want ...string) v1.PodVolumeHealth {
	w.t.Helper()
	var is v1.PodVolumeHealth
	w.watchUntil("health of pod "+name+" "+strings.Join(want, " "), "pods", func() bool {
		list := w.healthOf(name)
		if len(list) != 1 {
			return false
		}
		is = list[0]
		var got []string
		for _, c := range is.HealthConditions {
			got = append(got, string(c.Status)+"/"+c.Reason+"/"+c.Message)
		}
		return slices.Equal(got, want)
	})
	return is
}

func ail(s csipb.VolumeHealthErrorType, reason, message string) *csipb.VolumeHealth_VolumeHealthEntry {
	return &csipb.VolumeHealth_VolumeHealthEntry{Status: s, Reason: reason, Message: message}
}

// TestVolumeHealthInPodStatus: what a driver says is wrong stands in the pod's status until it is not wrong any more.
func TestVolumeHealthInPodStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.health = true
	w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
	w.hurryBy(60)
	w.addVolume("a", "h1")
	w.startKubelet()
	w.createPod(pod("p", "a"))
	w.waitRunning("p")
	w.guest.ill.set(func(i *illness) {
		i.volume = []*csipb.VolumeHealth_VolumeHealthEntry{
			ail(csipb.VolumeHealthErrorType_DEGRADED, "Slow", "one path is left"), ail(csipb.VolumeHealthErrorType_DATA_LOSS, "Bad", ""),
			ail(csipb.VolumeHealthErrorType(99), "Newer", "than this kubelet")}
	})
	first := w.waitHealth("p", "Degraded/Slow/one path is left", "DataLoss/Bad/")
	if first.Name != "vol-a" || first.LastTransitionTime.IsZero() {
		t.Errorf("health %+v", first)
	}
	w.guest.ill.mu.Lock()
	asked := w.guest.ill.asked[len(w.guest.ill.asked)-1]
	w.guest.ill.mu.Unlock()
	if !strings.HasSuffix(asked.StagingTargetPath, "/globalmount") || !strings.HasSuffix(asked.VolumePublishPath, "/pods/uid-p/volumes/kubernetes.io~csi/pv-a/mount") || asked.VolumeId != "h1" {
		t.Errorf("asked %v", asked)
	}
	// The same in other words, and an answer that does not come, change nothing; nor does another kubelet.
	w.guest.ill.set(func(i *illness) { i.volume[0].Message, i.asked = "still", nil })
	w.askedAgain(2)
	w.guest.ill.set(func(i *illness) { i.err, i.asked = status.Error(codes.Internal, "no"), nil })
	w.askedAgain(2)
	w.killKubelet()
	w.startKubelet()
	w.askedAgain(4)
	if got := w.healthOf("p"); len(got) != 1 || got[0].HealthConditions[0].Message != "one path is left" || !got[0].LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("health %+v", got)
	}
	w.guest.ill.set(func(i *illness) { i.volume, i.err = nil, nil })
	w.waitHealth("p")
}

// askedAgain waits until the guest was asked so often for a volume's health.
func (w *world) askedAgain(times int) {
	w.t.Helper()
	for {
		w.guest.ill.mu.Lock()
		n := len(w.guest.ill.asked)
		w.guest.ill.mu.Unlock()
		if n >= times {
			return
		}
		if w.ctx.Err() != nil {
			w.t.Fatalf("asked %d times, not %d", n, times)
		}
		w.pause()
	}
}

// TestHealthOfWhatDoesNotComeUp: a volume that cannot be staged is asked for; without the feature gate none is.
func TestHealthOfWhatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	for name, gate := range map[string]bool{"gate": true, "no gate": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health = gate
			w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
			w.guest.set(func(call string) error {
				if strings.HasPrefix(call, "Stage") {
					return status.Error(codes.Internal, "no")
				}
				return nil
			}, nil)
			w.guest.ill.set(func(i *illness) {
				i.volume = []*csipb.VolumeHealth_VolumeHealthEntry{ail(csipb.VolumeHealthErrorType_INACCESSIBLE, "Gone", "")}
			})
			w.hurryBy(60)
			w.addVolume("a", "h1")
			w.startKubelet()
			w.createPod(pod("p", "a"))
			if gate {
				w.waitHealth("p", "Inaccessible/Gone/")
				return
			}
			before := w.lab.Clock.Now()
			for w.lab.Clock.Since(before) < 3*healthPeriod {
				w.pause()
			}
			w.guest.ill.set(func(i *illness) {
				if got := w.healthOf("p"); got != nil || len(i.asked) > 0 {
					t.Errorf("asked %d times; health %+v", len(i.asked), got)
				}
			})
		})
	}
}

// TestStorageHealth: what a driver says of its storage stands on CSINode and in the metrics.
func TestStorageHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.health = true
	w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	w.guest.ill.set(func(i *illness) {
		i.storage = []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth{
			{Status: csipb.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "NoRoute", Message: "no answer"},
			{Status: csipb.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "Slow", VolumeCapability: &csipb.VolumeCapability{
				AccessType: &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}},
				AccessMode: &csipb.VolumeCapability_AccessMode{Mode: csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}}
	})
	w.hurryBy(60)
	w.startKubelet()
	of := func() []storagev1.StorageHealth {
		n, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return n.Status.StorageHealth
	}
	w.watchUntil("storage health", "csinodes", func() bool { return len(of()) == 1 })
	is := of()[0]
	if is.Name != driverName || len(is.HealthConditions) != 2 || is.HealthConditions[0].Status != storagev1.StorageUnreachable || is.HealthConditions[0].Message != "no answer" ||
		*is.HealthConditions[1].AccessMode != v1.ReadWriteOnce || *is.HealthConditions[1].VolumeMode != v1.PersistentVolumeBlock {
		t.Errorf("health %+v", is)
	}
	w.scrapeUntil("both are in the metrics", func(text string) bool {
		return strings.Contains(text, `csi_node_storage_health_status{driver_name="`+driverName+`",reason="NoRoute",status="StorageUnreachable"} 1`) &&
			strings.Contains(text, `csi_node_storage_health_status{driver_name="`+driverName+`",reason="Slow",status="StorageDegraded"} 1`)
	})
	w.guest.ill.set(func(i *illness) { i.storage = nil })
	w.watchUntil("the storage is well", "csinodes", func() bool { return len(of()) == 0 })
	w.scrapeUntil("none in the metrics", func(text string) bool { return !strings.Contains(text, "csi_node_storage_health_status") })
}

// TestVolumeConditionAbnormal: drivers that are built on CSI up to 1.12 tell of it with the statistics.
func TestVolumeConditionAbnormal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.health = true
	w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.VolumeCondition)
	w.hurryBy(60)
	w.addVolume("a", "h1")
	w.startKubelet()
	w.createPod(pod("p", "a"))
	const metric = `kubelet_volume_stats_health_status_abnormal{namespace="default",persistentvolumeclaim="a"} `
	w.scrapeUntil("it is normal", func(text string) bool { return strings.Contains(text, metric+"0\n") })
	w.guest.ill.set(func(i *illness) { i.condition = "the disk is on fire" })
	if e := w.waitEvent("VolumeConditionAbnormal: Volume vol-a: the disk is on fire"); e.Type != v1.EventTypeWarning || e.InvolvedObject.Name != "p" {
		t.Errorf("event %+v", e)
	}
	w.scrapeUntil("it is abnormal", func(text string) bool { return strings.Contains(text, metric+"1\n") })
	w.guest.ill.set(func(i *illness) { i.condition = "" })
	w.scrapeUntil("it is normal again", func(text string) bool { return strings.Contains(text, metric+"0\n") })
}
