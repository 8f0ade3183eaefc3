package storage

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Revision counts the writes of a store, over all resources.
type Revision uint64

// String is the form that resourceVersion has.
func (r Revision) String() string { return strconv.FormatUint(uint64(r), 10) }

// Key names an object. Namespace is empty for cluster-scoped resources.
type Key struct {
	Resource  schema.GroupResource
	Namespace string
	Name      string
}

// Path orders the objects of one resource, as upstream's keys do: "namespace/name" or "name".
func (k Key) Path() string { return Path(k.Namespace, k.Name) }

// Path is Key.Path without the resource.
func Path(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// String is for messages.
func (k Key) String() string { return k.Resource.String() + " " + k.Path() }

// Entry is one state of one object. It never changes.
type Entry struct {
	Key      Key
	Revision Revision
	// Object has apiVersion, kind and resourceVersion set. It is shared: do not change it.
	Object runtime.Object

	path string
	sum  uint64 // of the row's bytes, which have no resourceVersion in them
	size int    // of the row's bytes

	forms forms
}

// Encoded returns the object's bytes in the named form, made by encode the first time
// and shared by everybody who asks later. The bytes must not be changed.
func (e *Entry) Encoded(name string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	return e.forms.get(formName{name: name}, func() ([]byte, error) { return encode(e.Object) })
}

// EncodedOnce is Encoded for who reads so much that it must not be kept.
func (e *Entry) EncodedOnce(name string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	if b := e.forms.known(formName{name: name}); b != nil {
		return b, nil
	}
	return encode(e.Object)
}

// Size is how many bytes the object has on disk.
func (e *Entry) Size() int { return e.size }

// at returns the same state as another revision would show it.
func (e *Entry) at(r Revision) *Entry {
	o := e.Object.DeepCopyObject()
	setRevision(o, r)
	return &Entry{Key: e.Key, Revision: r, Object: o, path: e.path, sum: e.sum, size: e.size}
}

func setRevision(o runtime.Object, r Revision) {
	// Write has proven that the object has metadata.
	if m, err := meta.Accessor(o); err == nil {
		m.SetResourceVersion(r.String())
	}
}

func less(a, b *Entry) bool { return a.path < b.path }
