package workload

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// patience is how long a write that does not show up in the cache is waited for: it may have been undone
// before anybody looked.
const patience = 30 * time.Second

// Pending remembers what a controller has written and its cache has not shown yet, so that it does not do the
// same again from an old picture. It is safe for concurrent use.
type Pending struct {
	Clock clock.PassiveClock

	mu    sync.Mutex
	byKey map[types.NamespacedName]map[types.UID]time.Time // guarded by mu
}

// Wrote records a write of an object, unless shown, asked afterwards, says that the cache has it.
func (p *Pending) Wrote(key types.NamespacedName, uid types.UID, shown func() bool) {
	p.mu.Lock()
	if p.byKey == nil {
		p.byKey = map[types.NamespacedName]map[types.UID]time.Time{}
	}
	if p.byKey[key] == nil {
		p.byKey[key] = map[types.UID]time.Time{}
	}
	p.byKey[key][uid] = p.Clock.Now()
	p.mu.Unlock()
	if shown() {
		p.Shown(key, uid)
	}
}

// Shown tells that the cache has caught up with an object.
func (p *Pending) Shown(key types.NamespacedName, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byKey[key], uid)
	if len(p.byKey[key]) == 0 {
		delete(p.byKey, key)
	}
}

// Any tells whether something of a key is still to be shown, and for how long that may hold up its owner.
func (p *Pending) Any(key types.NamespacedName) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for uid, at := range p.byKey[key] {
		if left := patience - p.Clock.Since(at); left > 0 {
			longest = max(longest, left)
		} else {
			delete(p.byKey[key], uid)
		}
	}
	return longest, longest > 0
}
