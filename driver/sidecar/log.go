package sidecar

import (
	"github.com/go-logr/logr"
	"github.com/go-logr/zerologr"
	"github.com/rs/zerolog"
	"k8s.io/klog/v2"
)

// Logger carries the libraries' logs into log. What they call information is a detail
// of ours: it comes out one level lower, V(0) at debug and V(1) at trace. Errors stay errors.
func Logger(log zerolog.Logger) logr.Logger { return zerologr.New(&log).V(1) }

// RouteKlog carries what the libraries log without a context into log. It sets
// klog's one logger of the process, so it belongs into main, before anything runs.
func RouteKlog(log zerolog.Logger) { klog.SetLogger(Logger(log)) }
