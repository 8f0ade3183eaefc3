package volumemanager

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// bell wakes any number of waiters. Who waits takes the channel first and looks at the
// state after: what changes between is seen, or rings.
type bell struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu; nil while nobody waits
}

func newBell() *bell { return &bell{} }

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// bells is a bell for each pod that somebody waits for.
type bells struct {
	mu   sync.Mutex
	pods map[types.UID]*waited // guarded by mu
}

type waited struct {
	bell
	waiters int // guarded by bells.mu
}

func newBells() *bells { return &bells{pods: map[types.UID]*waited{}} }

// join returns a pod's bell, and what is to be called when it is not needed any more.
func (b *bells) join(uid types.UID) (*bell, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.pods[uid]
	if w == nil {
		w = &waited{}
		b.pods[uid] = w
	}
	w.waiters++
	return &w.bell, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if w.waiters--; w.waiters == 0 {
			delete(b.pods, uid)
		}
	}
}

func (b *bells) ring(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.pods[uid]; w != nil {
		w.ring()
	}
}

func (b *bells) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.pods {
		w.ring()
	}
}
