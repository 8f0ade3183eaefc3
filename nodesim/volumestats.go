package nodesim

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubestats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumemanager"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// statsAge is how old the numbers of a pod's volumes may be, as a kubelet's are that counts
// each minute. Here they are counted when somebody asks.
const statsAge = time.Minute

// podNumbers are the numbers of one pod's volumes, and when they were counted.
type podNumbers struct {
	at      time.Time
	state   string // of its volumes then: another one makes the numbers old
	volumes []kubestats.VolumeStats
}

// summary is the node's, in the form of upstream's stats API.
func (l *life) summary(ctx context.Context) *kubestats.Summary {
	l.statsMu.Lock()
	defer l.statsMu.Unlock()
	s := &kubestats.Summary{Node: kubestats.NodeStats{NodeName: l.c.Name, StartTime: metav1.NewTime(l.began)}, Pods: []kubestats.PodStats{}}
	s.Node.Fs = fsStats(l.layout.Root, metav1.NewTime(l.clock.Now()))
	by := map[string][]volumemanager.VolumeState{}
	for _, v := range l.volumes.State() {
		for _, p := range v.Pods {
			if p.State == volumemanager.Mounted {
				by[string(p.UID)] = append(by[string(p.UID)], v)
			}
		}
	}
	kept := map[string]podNumbers{}
	for _, pod := range l.pods.List() {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue // that a pod runs the cache may learn later than who asks; what is mounted is known here
		}
		uid := string(pod.UID)
		var names []string
		for _, v := range by[uid] {
			names = append(names, string(v.Name))
		}
		slices.Sort(names)
		state := strings.Join(names, ",")
		n, known := l.stats[uid]
		if !known || n.state != state || l.clock.Since(n.at) >= statsAge {
			n = podNumbers{at: l.clock.Now(), state: state, volumes: l.count(ctx, pod, by[uid])}
		}
		kept[uid] = n
		p := kubestats.PodStats{PodRef: kubestats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: uid}, VolumeStats: n.volumes, Containers: []kubestats.ContainerStats{}}
		if pod.Status.StartTime != nil {
			p.StartTime = *pod.Status.StartTime
		}
		s.Pods = append(s.Pods, p)
	}
	l.stats = kept
	slices.SortFunc(s.Pods, func(a, b kubestats.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name, b.PodRef.Namespace+"/"+b.PodRef.Name)
	})
	return s
}

// count asks for the numbers of each mounted volume of a pod. One that cannot tell is
// left out, and holds up no other.
func (l *life) count(ctx context.Context, pod *v1.Pod, mounted []volumemanager.VolumeState) []kubestats.VolumeStats {
	var out []kubestats.VolumeStats
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		claim, inner := claimName(pod, v), v.Name
		if claim != "" {
			c, err := l.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
			if err != nil {
				continue
			}
			inner = c.Spec.VolumeName
		}
		j := slices.IndexFunc(mounted, func(m volumemanager.VolumeState) bool { return m.Volume == inner })
		if j < 0 {
			continue
		}
		n, ok := l.countOne(ctx, pod, v.Name, mounted[j])
		if !ok {
			continue
		}
		if n.Name, n.Time = v.Name, metav1.NewTime(l.clock.Now()); claim != "" {
			n.PVCRef = &kubestats.PVCReference{Namespace: pod.Namespace, Name: claim}
		}
		out = append(out, n)
	}
	return out
}

func (l *life) countOne(ctx context.Context, pod *v1.Pod, outer string, v volumemanager.VolumeState) (kubestats.VolumeStats, bool) {
	i := slices.IndexFunc(v.Pods, func(p volumemanager.PodMount) bool { return p.UID == pod.UID })
	path := v.Pods[i].Path
	if v.Plugin != csi.PluginName {
		if path == "" {
			path = l.layout.PodVolume(pod.UID, v.Plugin, outer)
		}
		return dirStats(path)
	}
	driver, handle, ok := strings.Cut(strings.TrimPrefix(string(v.Name), csi.PluginName+"/"), "^")
	if !ok {
		return kubestats.VolumeStats{}, false // an inline volume's driver is asked by nobody
	}
	if usesBlock(pod, outer) {
		path = l.mappedDevice(v.Volume, pod.UID)
	}
	r, err := l.csi.Stats(ctx, driver, handle, path)
	if err != nil {
		l.log.Warn().Err(err).Str("volume", v.Volume).Msg("volume stats")
	}
	if err != nil || r == nil {
		return kubestats.VolumeStats{}, false
	}
	return stats.FromDriver(outer, r), true
}

// dirStats are those of a volume that is a directory: the filesystem that it lies on, and what it holds itself.
func dirStats(dir string) (kubestats.VolumeStats, bool) {
	var used, files uint64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		files++
		if fi, err := d.Info(); err == nil && !d.IsDir() {
			used += uint64(fi.Size())
		}
		return nil
	})
	if err != nil {
		return kubestats.VolumeStats{}, false
	}
	v := kubestats.VolumeStats{}
	if f := fsStats(dir, metav1.Time{}); f != nil {
		v.FsStats = *f
	}
	v.UsedBytes, v.InodesUsed = &used, &files
	return v, true
}
