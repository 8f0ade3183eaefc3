// Package stats turns what is known of volumes into the forms in which a kubelet
// shows it: the summary of k8s.io/kubelet's stats API, and Prometheus text.
//
// It knows nothing of nodes, drivers and files: whoever calls has asked those.
package stats

import (
	"fmt"
	"io"
	"slices"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	kubestats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// FromDriver puts a driver's answer into the summary's form. A block volume has a total only.
func FromDriver(name string, r *csipb.NodeGetVolumeStatsResponse) kubestats.VolumeStats {
	v := kubestats.VolumeStats{Name: name}
	for _, u := range r.GetUsage() {
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			v.CapacityBytes, v.AvailableBytes, v.UsedBytes = number(u.Total), number(u.Available), number(u.Used)
		case csipb.VolumeUsage_INODES:
			v.Inodes, v.InodesFree, v.InodesUsed = number(u.Total), number(u.Available), number(u.Used)
		}
	}
	return v
}

func number(n int64) *uint64 {
	if n < 0 {
		n = 0
	}
	u := uint64(n)
	return &u
}

// series is one metric of volumes that come from claims.
type series struct {
	name, help string
	value      func(*kubestats.VolumeStats) *uint64
}

var all = []series{
	{"kubelet_volume_stats_available_bytes", "Number of available bytes in the volume", func(v *kubestats.VolumeStats) *uint64 { return v.AvailableBytes }},
	{"kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", func(v *kubestats.VolumeStats) *uint64 { return v.CapacityBytes }},
	{"kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", func(v *kubestats.VolumeStats) *uint64 { return v.Inodes }},
	{"kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", func(v *kubestats.VolumeStats) *uint64 { return v.InodesFree }},
	{"kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", func(v *kubestats.VolumeStats) *uint64 { return v.InodesUsed }},
	{"kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", func(v *kubestats.VolumeStats) *uint64 { return v.UsedBytes }},
}

// Metrics writes the kubelet's volume metrics: one line for each claim, though several pods use it.
func Metrics(w io.Writer, s *kubestats.Summary) error {
	var b strings.Builder
	for _, m := range all {
		lines := map[string]bool{}
		for _, p := range s.Pods {
			for i := range p.VolumeStats {
				v := &p.VolumeStats[i]
				if v.PVCRef == nil {
					continue
				}
				if n := m.value(v); n != nil {
					lines[fmt.Sprintf("%s{namespace=%q,persistentvolumeclaim=%q} %d\n", m.name, v.PVCRef.Namespace, v.PVCRef.Name, *n)] = true
				}
			}
		}
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s [ALPHA] %s\n# TYPE %s gauge\n", m.name, m.help, m.name)
		sorted := make([]string, 0, len(lines))
		for l := range lines {
			sorted = append(sorted, l)
		}
		slices.Sort(sorted)
		b.WriteString(strings.Join(sorted, ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Count is how many volumes of a plugin are in a state.
type Count struct{ Plugin, State string }

// Totals writes the volume manager's own metric.
func Totals(w io.Writer, counts map[Count]int) error {
	values := map[string]int{}
	for c, n := range counts {
		values[Labels("plugin_name", c.Plugin, "state", c.State)] = n
	}
	return Gauges{Name: "volume_manager_total_volumes", Help: "Number of volumes in Volume Manager", Values: values}.Write(w)
}
