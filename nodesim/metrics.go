package nodesim

import (
	"context"
	"io"
	"slices"

	"drydock.dev/drydock/nodesim/stats"
)

// writeMetrics writes what a kubelet counts of volumes, in Prometheus' text form. It ends early if w does not take it.
func (l *life) writeMetrics(ctx context.Context, w io.Writer) {
	if stats.Metrics(w, l.summary(ctx)) != nil || stats.Totals(w, l.volumes.Totals()) != nil {
		return
	}
	for _, g := range slices.Concat(l.orphanGauges(), []stats.Gauges{l.pluginGauges()}, l.health.gauges()) {
		if g.Write(w) != nil {
			return
		}
	}
	l.host.Operations.Write(w)
}

func (l *life) orphanGauges() []stats.Gauges {
	found, left := l.orphans()
	return []stats.Gauges{
		{Name: "kubelet_orphan_pod_cleaned_volumes", Help: "Directories of pods that nobody knows, as the last look at them met them", Values: map[string]int{"": found}},
		{Name: "kubelet_orphan_pod_cleaned_volumes_errors", Help: "Those of them that it could not remove", Values: map[string]int{"": left}},
	}
}

// pluginGauges tell of the sockets in plugins_registry: which there are, and which are registered.
func (l *life) pluginGauges() stats.Gauges {
	values := map[string]int{}
	for _, s := range l.plugins.Sockets() {
		if s.There {
			values[stats.Labels("socket_path", s.Path, "state", "desired_state_of_world")] = 1
		}
		if s.Registered {
			values[stats.Labels("socket_path", s.Path, "state", "actual_state_of_world")] = 1
		}
	}
	return stats.Gauges{Name: "plugin_manager_total_plugins", Help: "Sockets of plugins, by what the plugin manager knows of them", Values: values}
}
