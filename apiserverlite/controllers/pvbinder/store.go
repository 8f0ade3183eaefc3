package pvbinder

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// store is the latest state known of each claim and volume: what the informers
// delivered or what the API answered to a write of ours, whichever is newer by
// resourceVersion. So a worker that has just bound a claim does not take its own
// write's past, arriving late by the watch, for the present. Its objects must not be changed.
type store struct {
	mu       sync.Mutex
	claims   map[string]*corev1.PersistentVolumeClaim // guarded by mu, by namespace/name
	volumes  map[string]*corev1.PersistentVolume      // guarded by mu, by name
	reserved map[string]string                        // guarded by mu: volume chosen -> claim it is being written for
}

func newStore() *store {
	return &store{
		claims:   map[string]*corev1.PersistentVolumeClaim{},
		volumes:  map[string]*corev1.PersistentVolume{},
		reserved: map[string]string{},
	}
}

// newer tells whether obj should replace have. A new object of an old name is always newer.
func newer(have, obj metav1.Object) bool {
	if have.GetUID() != obj.GetUID() {
		c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), have.GetResourceVersion())
		return err != nil || c > 0
	}
	c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), have.GetResourceVersion())
	return err != nil || c > 0
}

// putClaim keeps the claim if it is newer than what is known, and tells so.
func (s *store) putClaim(claim *corev1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := claimKey(claim)
	if have, ok := s.claims[key]; ok && !newer(have, claim) {
		return false
	}
	s.claims[key] = claim
	return true
}

// putVolume is putClaim for volumes.
func (s *store) putVolume(volume *corev1.PersistentVolume) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.volumes[volume.Name]; ok && !newer(have, volume) {
		return false
	}
	s.volumes[volume.Name] = volume
	return true
}

// wroteClaim keeps the answer to a write of ours. Unlike what an informer delivers, it
// may come after the claim's end was seen; then it is not news and must not bring the claim back.
func (s *store) wroteClaim(claim *corev1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := claimKey(claim)
	have, ok := s.claims[key]
	if !ok || have.UID != claim.UID || !newer(have, claim) {
		return false
	}
	s.claims[key] = claim
	return true
}

// wroteVolume is wroteClaim for volumes.
func (s *store) wroteVolume(volume *corev1.PersistentVolume) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.volumes[volume.Name]
	if !ok || have.UID != volume.UID || !newer(have, volume) {
		return false
	}
	s.volumes[volume.Name] = volume
	return true
}

// dropClaim forgets a claim that was deleted, unless a new one of its name is known already.
func (s *store) dropClaim(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.claims[claimKey(claim)]; ok && have.UID == claim.UID {
		delete(s.claims, claimKey(claim))
	}
}

func (s *store) dropVolume(volume *corev1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.volumes[volume.Name]; ok && have.UID == volume.UID {
		delete(s.volumes, volume.Name)
	}
}

// claim returns the claim of that key, or nil.
func (s *store) claim(key string) *corev1.PersistentVolumeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[key]
}

// volume returns the volume of that name, or nil.
func (s *store) volume(name string) *corev1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.volumes[name]
}

// pending returns the claims that are neither bound nor lost.
func (s *store) pending() []*corev1.PersistentVolumeClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*corev1.PersistentVolumeClaim
	for _, c := range s.claims {
		if c.Status.Phase != corev1.ClaimBound && c.Status.Phase != corev1.ClaimLost {
			list = append(list, c)
		}
	}
	return list
}

// unsettled returns the names of the volumes whose phase does not yet say what their claimRef does.
func (s *store) unsettled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, v := range s.volumes {
		if unsettled(v) {
			names = append(names, name)
		}
	}
	return names
}

func unsettled(v *corev1.PersistentVolume) bool {
	claimed := v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != ""
	switch v.Status.Phase {
	case corev1.VolumeBound:
		return !claimed
	case corev1.VolumeAvailable:
		return claimed
	case corev1.VolumeReleased:
		return false
	}
	return true
}

// volumesOf returns the names of the volumes whose claimRef names that claim.
func (s *store) volumesOf(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, v := range s.volumes {
		if v.Spec.ClaimRef != nil && refKey(v.Spec.ClaimRef) == key {
			names = append(names, name)
		}
	}
	return names
}

// reserve lets choose pick among the volumes that no other claim is being bound to
// at this moment, in order of their names, and keeps the choice for key until release.
func (s *store) reserve(key string, choose func([]*corev1.PersistentVolume) (*corev1.PersistentVolume, error)) (*corev1.PersistentVolume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := make([]*corev1.PersistentVolume, 0, len(s.volumes))
	for name, v := range s.volumes {
		if by, ok := s.reserved[name]; !ok || by == key {
			free = append(free, v)
		}
	}
	slices.SortFunc(free, func(a, b *corev1.PersistentVolume) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	v, err := choose(free)
	if v != nil && err == nil {
		s.reserved[v.Name] = key
	}
	return v, err
}

// release ends a reservation: the binding is written, or given up.
func (s *store) release(volume string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, volume)
}

func claimKey(c *corev1.PersistentVolumeClaim) string { return c.Namespace + "/" + c.Name }

func refKey(r *corev1.ObjectReference) string { return r.Namespace + "/" + r.Name }
