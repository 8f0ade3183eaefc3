package volumemanager

import "k8s.io/apimachinery/pkg/api/resource"

// initSize records what a volume's claim has, if no size is on record yet.
func (a *actual) initSize(name UniqueName, size resource.Quantity) {
	a.mu.Lock()
	v := a.volumes[name]
	fresh := v != nil && v.size.IsZero() && !size.IsZero()
	if fresh {
		v.size = size
	}
	a.mu.Unlock()
	if fresh {
		a.tell.touch(name)
	}
}

// markResized records what a volume was expanded to.
func (a *actual) markResized(name UniqueName, size resource.Quantity) error {
	return a.change(name, func(v *haveVolume) { v.size = size })
}

// markExpansionInUse ends all tries to expand the volume until it has been detached.
func (a *actual) markExpansionInUse(name UniqueName) error {
	return a.change(name, func(v *haveVolume) { v.inUse = true })
}

// markExpansionFailed remembers, for the kubelet's life, that an expansion ended with a final error.
func (a *actual) markExpansionFailed(name UniqueName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed[name] = true
}

func (a *actual) expansionFailed(name UniqueName) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.failed[name]
}

// setSize records how large a volume is to be.
func (d *desired) setSize(name UniqueName, size resource.Quantity) {
	d.mu.Lock()
	v := d.volumes[name]
	changed := v != nil && v.size.Cmp(size) != 0
	if changed {
		v.size = size
	}
	d.mu.Unlock()
	if changed {
		d.tell.touch(name)
	}
}
