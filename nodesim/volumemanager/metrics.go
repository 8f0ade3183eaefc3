package volumemanager

import (
	"errors"
	"time"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// metricName is what metrics call the plugin of a volume.
func metricName(plugin string, s *volumeplugin.Spec) string {
	if s == nil {
		return plugin
	}
	return stats.PluginName(plugin, s.CSIDriver())
}

// count enters an operation that has ended.
func (m *Manager) count(o operationSpec, began time.Time, err error) {
	if errors.Is(err, errNotYet) {
		err = nil
	}
	m.host.Operations.Operation(metricName(o.plugin, o.spec), o.name, m.host.Lab.Clock.Since(began), err)
}

// Totals counts the volumes of pods: those that are mounted, and those that are wanted.
func (m *Manager) Totals() map[stats.Count]int {
	out := map[stats.Count]int{}
	for _, p := range m.actual.mounts(m.known()) {
		if p.State == Mounted {
			out[stats.Count{Plugin: metricName(p.Plugin, p.Spec), State: "actual_state_of_world"}]++
		}
	}
	for _, w := range m.desired.list(m.known()) {
		out[stats.Count{Plugin: metricName(w.Plugin, w.Spec), State: "desired_state_of_world"}]++
	}
	return out
}
