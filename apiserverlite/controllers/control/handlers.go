package control

import (
	"k8s.io/client-go/tools/cache"
)

// On registers handlers of one kind's informer. Any of them may be nil. A deletion
// that the watch missed arrives with the last known state, as any other.
type On[T any] struct {
	// Add is also called for each object that exists at the start.
	Add    func(obj T)
	Update func(old, obj T)
	Delete func(obj T)
	// Any is called by each of the above, after it.
	Any func(obj T)
}

// Register puts the handlers in force. The informer must not have been started.
func Register[T any](informer cache.SharedIndexInformer, on On[T]) {
	any := on.Any
	if any == nil {
		any = func(T) {}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o interface{}) {
			obj := o.(T)
			if on.Add != nil {
				on.Add(obj)
			}
			any(obj)
		},
		UpdateFunc: func(o, n interface{}) {
			obj := n.(T)
			if on.Update != nil {
				on.Update(o.(T), obj)
			}
			any(obj)
		},
		DeleteFunc: func(o interface{}) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			obj, ok := o.(T)
			if !ok {
				return
			}
			if on.Delete != nil {
				on.Delete(obj)
			}
			any(obj)
		},
	})
	if err != nil {
		panic("controllers: handler registered on a stopped informer: " + err.Error())
	}
}

// Index adds an index unless another controller of this run has added it already:
// an index of one name always means the same.
func Index(informer cache.SharedIndexInformer, name string, f cache.IndexFunc) {
	if _, ok := informer.GetIndexer().GetIndexers()[name]; ok {
		return
	}
	if err := informer.AddIndexers(cache.Indexers{name: f}); err != nil {
		panic("controllers: index " + name + ": " + err.Error())
	}
}
