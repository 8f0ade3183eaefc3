// Package controllers runs what kube-controller-manager and kube-scheduler do for
// storage. Each controller is a package below this one and speaks only the
// Kubernetes API.
//
// Promises. All controllers of one Run share one set of informers. Nothing polls:
// work starts on a watch event or on a timer of the lab's clock that is due. When
// the component is killed, its memory is gone and no further write is made; the next
// Run finds everything out from the API. Run returns only when every goroutine has ended.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"drydock.dev/drydock/apiserverlite/controllers/attachdetach"
	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/daemonset"
	"drydock.dev/drydock/apiserverlite/controllers/deployment"
	"drydock.dev/drydock/apiserverlite/controllers/disruption"
	"drydock.dev/drydock/apiserverlite/controllers/ephemeral"
	"drydock.dev/drydock/apiserverlite/controllers/expand"
	"drydock.dev/drydock/apiserverlite/controllers/garbagecollector"
	"drydock.dev/drydock/apiserverlite/controllers/job"
	"drydock.dev/drydock/apiserverlite/controllers/namespace"
	"drydock.dev/drydock/apiserverlite/controllers/nodelifecycle"
	"drydock.dev/drydock/apiserverlite/controllers/podgc"
	"drydock.dev/drydock/apiserverlite/controllers/protection"
	"drydock.dev/drydock/apiserverlite/controllers/pvbinder"
	"drydock.dev/drydock/apiserverlite/controllers/replicaset"
	"drydock.dev/drydock/apiserverlite/controllers/resourcequota"
	"drydock.dev/drydock/apiserverlite/controllers/roleaggregation"
	"drydock.dev/drydock/apiserverlite/controllers/scheduler"
	"drydock.dev/drydock/apiserverlite/controllers/statefulset"
	"drydock.dev/drydock/apiserverlite/controllers/tainteviction"
	"drydock.dev/drydock/internal/lab"
)

// KindScheduler is the kind of a lab.Component that runs the scheduler alone, as
// kube-scheduler; a component of any other kind, or none, runs every controller.
// A cluster that wants the two to die apart calls Run twice, the second time with
// Without naming the scheduler.
const KindScheduler = "scheduler"

// Config of Run.
type Config struct {
	// Client should have no rate limit of its own: the API is in the same process.
	Client kubernetes.Interface
	// Metadata reaches every resource there is. Without it the controllers that need
	// it do not run: namespace content cannot be deleted.
	Metadata  metadata.Interface
	Lab       *lab.Lab
	Component *lab.Component // may be nil
	Log       zerolog.Logger
	// Without names controllers that do not run.
	Without []string
	// AttachDetach tunes that controller.
	AttachDetach attachdetach.Options
	// Namespace tunes that controller: the root certificate for pods.
	Namespace namespace.Options
}

// entry is one controller that can be run.
type entry struct {
	name string
	make func(control.Env, Config) control.Controller
}

// all lists the controllers in the order they start.
func all() []entry {
	return []entry{
		{pvbinder.Name, func(e control.Env, _ Config) control.Controller { return pvbinder.New(e) }},
		{scheduler.Name, func(e control.Env, _ Config) control.Controller { return scheduler.New(e) }},
		{attachdetach.Name, func(e control.Env, c Config) control.Controller { return attachdetach.New(e, c.AttachDetach) }},
		{protection.Name, func(e control.Env, _ Config) control.Controller { return protection.New(e) }},
		{ephemeral.Name, func(e control.Env, _ Config) control.Controller { return ephemeral.New(e) }},
		{expand.Name, func(e control.Env, _ Config) control.Controller { return expand.New(e) }},
		{namespace.Name, func(e control.Env, c Config) control.Controller { return namespace.New(e, c.Namespace) }},
		{garbagecollector.Name, func(e control.Env, _ Config) control.Controller { return garbagecollector.New(e) }},
		{statefulset.Name, func(e control.Env, _ Config) control.Controller { return statefulset.New(e) }},
		{replicaset.Name, func(e control.Env, _ Config) control.Controller { return replicaset.New(e) }},
		{replicaset.NameOfControllers, func(e control.Env, _ Config) control.Controller { return replicaset.NewForControllers(e) }},
		{deployment.Name, func(e control.Env, _ Config) control.Controller { return deployment.New(e) }},
		{daemonset.Name, func(e control.Env, _ Config) control.Controller { return daemonset.New(e) }},
		{job.Name, func(e control.Env, _ Config) control.Controller { return job.New(e) }},
		{resourcequota.Name, func(e control.Env, _ Config) control.Controller { return resourcequota.New(e) }},
		{disruption.Name, func(e control.Env, _ Config) control.Controller { return disruption.New(e) }},
		{roleaggregation.Name, func(e control.Env, _ Config) control.Controller { return roleaggregation.New(e) }},
		{podgc.Name, func(e control.Env, _ Config) control.Controller { return podgc.New(e) }},
		{nodelifecycle.Name, func(e control.Env, _ Config) control.Controller { return nodelifecycle.New(e) }},
		{tainteviction.Name, func(e control.Env, _ Config) control.Controller { return tainteviction.New(e) }},
	}
}

// Names lists the controllers, as in Config.Without.
func Names() []string {
	var names []string
	for _, e := range all() {
		names = append(names, e.name)
	}
	return names
}

// Points lists the kill points of all controllers.
func Points() []lab.Point {
	return slices.Concat(pvbinder.Points(), scheduler.Points(), attachdetach.Points(), protection.Points(),
		ephemeral.Points(), namespace.Points(), garbagecollector.Points(), podgc.Points(), nodelifecycle.Points(),
		statefulset.Points(), replicaset.Points(), deployment.Points(), daemonset.Points(), job.Points())
}

// Run runs the controllers until ctx or the component ends, and returns when all of
// them have. The error is of the configuration, or says that the API could not be
// read before ctx ended.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Client == nil || cfg.Lab == nil {
		return errors.New("run controllers: a client and a lab are needed")
	}
	for _, name := range cfg.Without {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("run controllers without %q: unknown; known are %s", name, strings.Join(Names(), ", "))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c := cfg.Component; c != nil {
		defer context.AfterFunc(c.Context(), cancel)()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(slim))
	events := control.NewEvents(ctx, cfg.Client)
	defer events.Shutdown()
	env := control.Env{
		Client: cfg.Client, Metadata: cfg.Metadata, Informers: factory,
		Lab: cfg.Lab, Component: cfg.Component, Log: cfg.Log, Recorder: events.Recorder, Queues: &control.Queues{},
	}
	defer env.Queues.ShutDown()
	var run []control.Controller
	for _, e := range all() {
		if c := cfg.Component; c != nil && c.Kind() == KindScheduler && e.name != scheduler.Name {
			continue
		}
		if !slices.Contains(cfg.Without, e.name) {
			run = append(run, e.make(env, cfg))
		}
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel() // before Shutdown, which waits for the informers
	if r := factory.WaitForCacheSyncWithContext(ctx); r.Err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("fill the controllers' caches: %w", r.Err)
	}
	var wg sync.WaitGroup
	for _, c := range run {
		wg.Go(func() {
			c.Run(ctx)
		})
	}
	wg.Wait()
	return nil
}

// slim drops what no controller reads from the cached objects. The server keeps the
// managed fields of an object that is written without any.
func slim(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
