package storage

import (
	"slices"
	"sync"
)

// forms keeps what was encoded once for all who ask. Its zero value is ready.
type forms struct {
	mu  sync.Mutex
	all []form // guarded by mu, the oldest first
}

// mostForms is more than there are of one state of a kind. Each change of a definition brings new names for those of its
// objects, which may live for long: the oldest go.
const mostForms = 16

type form struct {
	formName
	bytes []byte
}

// formName is the caller's name of a form; as is what kind of event it shows, if any.
type formName struct {
	name string
	as   EventType
}

// get returns the bytes of that name; the first caller makes them while the others wait.
func (f *forms) get(name formName, encode func() ([]byte, error)) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.find(name); b != nil {
		return b, nil
	}
	b, err := encode()
	if err != nil {
		return nil, err
	}
	if len(f.all) == mostForms {
		f.all = slices.Delete(f.all, 0, 1)
	}
	f.all = append(f.all, form{name, b})
	return b, nil
}

// known returns the bytes if somebody has made them, else nil.
func (f *forms) known(name formName) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(name)
}

// find needs mu.
func (f *forms) find(name formName) []byte {
	for _, have := range f.all {
		if have.formName == name {
			return have.bytes
		}
	}
	return nil
}

// forget drops what few will ask for again.
func (f *forms) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = nil
}
