package sidecar

import (
	"slices"

	"github.com/go-logr/logr"
	"github.com/go-logr/zerologr"
	"github.com/rs/zerolog"
	"k8s.io/klog/v2"
)

// Logger carries the libraries' logs into log. What they call information is a detail
// of ours: it comes out one level lower, V(0) at debug and V(1) at trace. What they call
// an error is mostly a try that they repeat, and that stands in an event of its object: it comes out as information.
func Logger(log zerolog.Logger) logr.Logger {
	return logr.New(lower{zerologr.New(&log).GetSink()})
}

// lower is a sink that reports everything one step less loudly.
type lower struct{ to logr.LogSink }

func (l lower) Init(i logr.RuntimeInfo)               { l.to.Init(i) }
func (l lower) Enabled(level int) bool                { return l.to.Enabled(level + 1) }
func (l lower) Info(level int, msg string, kv ...any) { l.to.Info(level+1, msg, kv...) }
func (l lower) WithValues(kv ...any) logr.LogSink     { return lower{l.to.WithValues(kv...)} }
func (l lower) WithName(name string) logr.LogSink     { return lower{l.to.WithName(name)} }
func (l lower) Error(err error, msg string, kv ...any) {
	if l.to.Enabled(0) {
		l.to.Info(0, msg, append(slices.Clone(kv), "error", err)...)
	}
}

// RouteKlog carries what the libraries log without a context into log. It sets
// klog's one logger of the process, so it belongs into main, before anything runs.
func RouteKlog(log zerolog.Logger) { klog.SetLogger(Logger(log)) }
