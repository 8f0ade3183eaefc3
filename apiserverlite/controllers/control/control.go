// Package control is what the controllers share: the environment they run in,
// work queues on the lab's clock, and events.
//
// Promises. A controller is made by its package's New, which registers its
// informer handlers and does nothing else, and then runs once: Run is called
// after the informers' caches are filled, blocks until its context ends, and
// returns when every goroutine it started has ended. Handlers never block on the
// API. Nothing polls: work starts on an event of an informer or on a timer of
// [Env.Clock] that is due.
package control

import (
	"context"

	"github.com/rs/zerolog"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/internal/lab"
)

// Env is where a controller runs. Its fields never change.
type Env struct {
	Client kubernetes.Interface
	// Metadata serves the controllers that work on every resource there is. It may be nil.
	Metadata metadata.Interface
	// Informers is shared by all controllers of one run; its objects must not be changed.
	Informers informers.SharedInformerFactory
	Lab       *lab.Lab
	Component *lab.Component
	Log       zerolog.Logger
	// Queues remembers what NewQueue makes. It may be nil.
	Queues *Queues
	// Recorder makes a recorder of events whose source is the named component.
	Recorder func(component string) record.EventRecorder
}

// Clock is the time that every timer of a controller uses.
func (e Env) Clock() clock.WithTickerAndDelayedExecution { return e.Lab.Clock }

// Point is a place between two writes where the component can be killed.
func (e Env) Point(p lab.Point, volume string) { e.Component.Point(p, volume) }

// For returns the environment with the controller's name in its log.
func (e Env) For(name string) Env {
	e.Log = e.Log.With().Str("controller", name).Logger()
	return e
}

// Controller is one of the controllers.
type Controller interface {
	// Run blocks until ctx ends and all that it started has ended.
	Run(ctx context.Context)
}
