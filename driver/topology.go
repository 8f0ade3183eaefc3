package driver

import "github.com/container-storage-interface/spec/lib/go/csi"

// topology is where the controller's volumes can be used.
func (c *controller) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{RegionKey: c.cloud.region}}
}

// reachable tells whether a volume of the region would be within the requirement.
func (c *controller) reachable(r *csi.TopologyRequirement) bool {
	terms := r.GetRequisite()
	if len(terms) == 0 {
		terms = r.GetPreferred()
	}
	for _, t := range terms {
		if c.here(t) {
			return true
		}
	}
	return len(terms) == 0
}

// here tells whether the region is in a topology. A segment that the cloud does not have is elsewhere.
func (c *controller) here(t *csi.Topology) bool {
	for k, v := range t.GetSegments() {
		if k != RegionKey || v != c.cloud.region {
			return false
		}
	}
	return true
}
