package stats

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// bounds are upstream's for all times of storage operations, in seconds.
var bounds = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

// Operations counts what one kubelet's life does with volumes, under upstream's names.
// It is safe for concurrent use. A nil *Operations counts nothing.
type Operations struct {
	mu       sync.Mutex
	times    map[timed]map[string]*histogram // guarded by mu: by the label pairs
	counters map[counter]uint64              // guarded by mu
	selinux  [selinuxKinds]map[string]int    // guarded by mu: by the label pairs
}

type timed int

const (
	storageOperation timed = iota
	endToEnd
	csiOperation
)

type counter int

const (
	reconstructed counter = iota
	reconstructErrors
	forceCleaned
	forceCleanErrors
	counters
)

type histogram struct {
	buckets []uint64 // by bound, the last one for what is above them all; not cumulative
	sum     float64
}

// NewOperations returns one that has counted nothing.
func NewOperations() *Operations {
	return &Operations{times: map[timed]map[string]*histogram{}, counters: map[counter]uint64{}}
}

// PluginName is how operations name the plugin of a volume: with the driver, if it is CSI's.
func PluginName(plugin, driver string) string {
	if driver == "" {
		return plugin
	}
	return plugin + ":" + driver
}

// Operation is one operation on a volume that has ended.
func (o *Operations) Operation(plugin, name string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	o.observe(storageOperation, took, "migrated", "false", "operation_name", name, "status", status, "volume_plugin", plugin)
}

// EndToEnd is something that took several operations, with the waits between them.
func (o *Operations) EndToEnd(plugin, name string, took time.Duration) {
	o.observe(endToEnd, took, "operation_name", name, "plugin_name", plugin)
}

// Call is one call of a CSI driver; code is gRPC's word for how it ended.
func (o *Operations) Call(driver, method, code string, took time.Duration) {
	o.observe(csiOperation, took, "driver_name", driver, "grpc_status_code", code, "method_name", method, "migrated", "false")
}

// Reconstructed counts a volume that was found on disk at the kubelet's start.
func (o *Operations) Reconstructed(err error) { o.count(reconstructed, reconstructErrors, err) }

// ForceCleaned counts a volume that could not be reconstructed and was cleaned up.
func (o *Operations) ForceCleaned(err error) { o.count(forceCleaned, forceCleanErrors, err) }

func (o *Operations) count(all, failed counter, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counters[all]++
	if err != nil {
		o.counters[failed]++
	}
}

// observe enters a time under labels, which are pairs in the order of their names.
func (o *Operations) observe(what timed, took time.Duration, pairs ...string) {
	if o == nil {
		return
	}
	var labels strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&labels, "%s=%q,", pairs[i], pairs[i+1])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times[what] == nil {
		o.times[what] = map[string]*histogram{}
	}
	h := o.times[what][labels.String()]
	if h == nil {
		h = &histogram{buckets: make([]uint64, len(bounds)+1)}
		o.times[what][labels.String()] = h
	}
	i, _ := slices.BinarySearch(bounds, took.Seconds())
	h.buckets[i]++
	h.sum += took.Seconds()
}

// Write writes them in Prometheus' text form. A histogram without observations is left out, as upstream's are.
func (o *Operations) Write(w io.Writer) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for what, is := range []struct{ name, help string }{
		storageOperation: {"storage_operation_duration_seconds", "[BETA] Storage operation duration"},
		endToEnd:         {"volume_operation_total_seconds", "[BETA] Storage operation end to end duration in seconds"},
		csiOperation:     {"csi_operations_seconds", "[ALPHA] Container Storage Interface operation duration with gRPC error code status total"},
	} {
		series := o.times[timed(what)]
		if len(series) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s histogram\n", is.name, is.help, is.name)
		for _, labels := range slices.Sorted(maps.Keys(series)) {
			series[labels].write(&b, is.name, labels)
		}
	}
	for what, is := range [counters]struct{ name, help string }{
		reconstructed:     {"reconstruct_volume_operations_total", "Volumes found on disk at the kubelet's start, whether or not they could be reconstructed"},
		reconstructErrors: {"reconstruct_volume_operations_errors_total", "Volumes found on disk at the kubelet's start that could not be reconstructed"},
		forceCleaned:      {"force_cleaned_failed_volume_operations_total", "Volumes that could not be reconstructed and were cleaned up, with or without success"},
		forceCleanErrors:  {"force_cleaned_failed_volume_operation_errors_total", "Volumes that could not be reconstructed, nor cleaned up"},
	} {
		fmt.Fprintf(&b, "# HELP %s [ALPHA] %s\n# TYPE %s counter\n%s %d\n", is.name, is.help, is.name, is.name, o.counters[counter(what)])
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return o.writeSELinux(w)
}

func (h *histogram) write(b *strings.Builder, name, labels string) {
	var total uint64
	for i, n := range h.buckets {
		total += n
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		fmt.Fprintf(b, "%s_bucket{%sle=%q} %d\n", name, labels, le, total)
	}
	labels = strings.TrimSuffix(labels, ",")
	fmt.Fprintf(b, "%s_sum{%s} %s\n%s_count{%s} %d\n", name, labels, strconv.FormatFloat(h.sum, 'g', -1, 64), name, labels, total)
}
