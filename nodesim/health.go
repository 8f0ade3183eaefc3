package nodesim

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumemanager"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// healthPeriod is how often drivers are asked how volumes and storage are.
const healthPeriod = time.Minute

// health is what drivers said last that no object keeps.
type health struct {
	mu       sync.Mutex
	storage  map[string][]storagev1.StorageHealthCondition // guarded by mu: by driver
	abnormal map[string]int                                // guarded by mu: 1 or 0 by the labels of a claim
}

// keepHealth is the kubelet's volume health manager, of its feature gate CSIVolumeHealth.
func (l *life) keepHealth(ctx context.Context) {
	if !l.c.VolumeHealth {
		return
	}
	for {
		due := l.clock.Now().Add(healthPeriod)
		l.examine(ctx)
		if !l.sleep(ctx, nil, due.Sub(l.clock.Now())) {
			return
		}
	}
}

// examine asks each driver that can tell. What a driver does not answer stays as it was.
func (l *life) examine(ctx context.Context) {
	patients := l.volumes.Patients()
	abnormal := map[string]int{}
	for _, driver := range l.csi.Names() {
		can, err := l.csi.Abilities(ctx, driver)
		if err != nil {
			l.log.Debug().Err(err).Str("driver", driver).Msg("ask a driver whether it tells of health")
			continue
		}
		if can[csi.StorageHealth] {
			l.examineStorage(ctx, driver)
		}
		for _, p := range patients {
			switch {
			case p.Driver != driver || ctx.Err() != nil:
			case can[csi.VolumeHealth]:
				conditions, err := l.csi.HealthOf(ctx, driver, p.Handle, p.Staged, p.Published)
				if err == nil {
					err = l.tellHealth(ctx, p, conditions)
				}
				if err != nil {
					l.log.Debug().Err(err).Str("volume", p.Inner).Msg("volume health")
				}
			case can[csi.VolumeCondition] && p.Mounted:
				l.examineCondition(ctx, p, abnormal)
			}
		}
	}
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.abnormal = abnormal
}

// tellHealth writes to the pod what is wrong with one of its volumes, if it is something
// else than it says already: other words for the same are not written.
func (l *life) tellHealth(ctx context.Context, p volumemanager.Patient, conditions []v1.VolumeHealthCondition) error {
	pod, there := l.pods.Get(p.Pod.UID)
	if !there {
		return nil
	}
	list := slices.Clone(pod.Status.VolumeHealth)
	i := slices.IndexFunc(list, func(h v1.PodVolumeHealth) bool { return h.Name == p.Volume })
	switch {
	case i < 0 && len(conditions) == 0, i >= 0 && sameHealth(list[i].HealthConditions, conditions):
		return nil
	case i < 0:
		list = append(list, v1.PodVolumeHealth{Name: p.Volume})
		i = len(list) - 1
	}
	list[i].HealthConditions, list[i].LastTransitionTime = conditions, metav1.NewTime(l.clock.Now())
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"volumeHealth": list}})
	if err != nil {
		return err
	}
	_, err = l.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // another pod, or none, has the name by now
	}
	return err
}

func sameHealth(a, b []v1.VolumeHealthCondition) bool {
	within := func(a, b []v1.VolumeHealthCondition) bool {
		return !slices.ContainsFunc(a, func(x v1.VolumeHealthCondition) bool {
			return !slices.ContainsFunc(b, func(y v1.VolumeHealthCondition) bool { return x.Status == y.Status && x.Reason == y.Reason })
		})
	}
	return within(a, b) && within(b, a)
}

func (l *life) examineStorage(ctx context.Context, driver string) {
	conditions, err := l.csi.StorageHealthOf(ctx, driver)
	if err == nil {
		l.health.mu.Lock()
		if l.health.storage == nil {
			l.health.storage = map[string][]storagev1.StorageHealthCondition{}
		}
		l.health.storage[driver] = conditions
		l.health.mu.Unlock()
		err = l.nodeInfo.SetStorageHealth(ctx, driver, conditions)
	}
	if err != nil && ctx.Err() == nil {
		l.log.Warn().Err(err).Str("driver", driver).Msg("storage health")
	}
}

// examineCondition is the way of kubelets up to 1.36 and of CSI up to 1.12: an event for
// each time that the statistics of a volume call it abnormal.
func (l *life) examineCondition(ctx context.Context, p volumemanager.Patient, abnormal map[string]int) {
	path := p.Published
	if p.Block {
		path = l.mappedDevice(p.Inner, p.Pod.UID)
	}
	r, err := l.csi.Stats(ctx, p.Driver, p.Handle, path)
	if err != nil || r == nil {
		return
	}
	is, told := csi.ConditionIn(r)
	if !told {
		return
	}
	for i := range p.Pod.Spec.Volumes {
		if v := &p.Pod.Spec.Volumes[i]; v.Name == p.Volume {
			labels := stats.Labels("namespace", p.Pod.Namespace, "persistentvolumeclaim", claimName(p.Pod, v))
			if abnormal[labels] = 0; is.Abnormal {
				abnormal[labels] = 1
			}
		}
	}
	if is.Abnormal {
		l.recorder.Eventf(p.Pod, v1.EventTypeWarning, "VolumeConditionAbnormal", "Volume %s: %s", p.Volume, is.Message)
	}
}

// mappedDevice is where a pod's block volume is bound for the kubelet itself.
func (l *life) mappedDevice(inner string, pod types.UID) string {
	return filepath.Join(l.layout.VolumeDevices(csi.PluginName), inner, "dev", string(pod))
}

func (h *health) gauges() []stats.Gauges {
	h.mu.Lock()
	defer h.mu.Unlock()
	storage := map[string]int{}
	for driver, conditions := range h.storage {
		for _, c := range conditions {
			storage[stats.Labels("driver_name", driver, "reason", c.Reason, "status", string(c.Status))] = 1
		}
	}
	return []stats.Gauges{
		{Name: "csi_node_storage_health_status", Help: "What CSI drivers say is wrong with their storage, as seen from this node", Values: storage},
		{Name: "kubelet_volume_stats_health_status_abnormal", Help: "1 if the driver calls the volume abnormal, else 0", Values: h.abnormal},
	}
}
