package workload

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// patience is how long a write that does not show up in the cache is waited for: it may have been undone
// before anybody looked.
const patience = 30 * time.Second

// Pending remembers what a controller has written and its cache has not shown yet, so that it does not do the
// same again from an old picture. It is safe for concurrent use.
type Pending struct {
	// Clock is real time: watches do not get faster when the lab's clock is advanced.
	Clock clock.PassiveClock

	mu    sync.Mutex
	byKey map[types.NamespacedName]map[types.UID]write // guarded by mu
}

// write is a creation or a removal that was done at a time.
type write struct {
	at      time.Time
	removal bool
}

// Made records the creation of an object, unless shown, asked afterwards, says that the cache has it.
func (p *Pending) Made(key types.NamespacedName, uid types.UID, shown func() bool) {
	p.wrote(key, uid, write{at: p.Clock.Now()}, shown)
}

// Removed records the deletion of an object likewise. It is shown by the object's end, or by an object that is on its
// way there: what the object was before may well arrive only now.
func (p *Pending) Removed(key types.NamespacedName, uid types.UID, shown func() bool) {
	p.wrote(key, uid, write{at: p.Clock.Now(), removal: true}, shown)
}

func (p *Pending) wrote(key types.NamespacedName, uid types.UID, w write, shown func() bool) {
	p.mu.Lock()
	if p.byKey == nil {
		p.byKey = map[types.NamespacedName]map[types.UID]write{}
	}
	if p.byKey[key] == nil {
		p.byKey[key] = map[types.UID]write{}
	}
	p.byKey[key][uid] = w
	p.mu.Unlock()
	if shown() {
		p.Gone(key, uid)
	}
}

// Shown tells what the cache shows of an object by now.
func (p *Pending) Shown(key types.NamespacedName, o metav1.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.byKey[key][o.GetUID()]; !w.removal || o.GetDeletionTimestamp() != nil {
		p.drop(key, o.GetUID())
	}
}

// Gone tells that an object has ended: nothing of it is waited for any more.
func (p *Pending) Gone(key types.NamespacedName, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(key, uid)
}

// drop is called with mu held.
func (p *Pending) drop(key types.NamespacedName, uid types.UID) {
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
	for uid, w := range p.byKey[key] {
		if left := patience - p.Clock.Since(w.at); left > 0 {
			longest = max(longest, left)
		} else {
			p.drop(key, uid)
		}
	}
	return longest, longest > 0
}
