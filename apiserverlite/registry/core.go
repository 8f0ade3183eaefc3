package registry

// coreKinds are the kinds of group "", in the order of discovery.
func coreKinds(o Options) []*Resource {
	return []*Resource{
		configMaps(), coreEvents(), limitRanges(), namespaces(), nodes(), persistentVolumeClaims(), persistentVolumes(o.Clock), pods(), resourceQuotas(), secrets(), serviceAccounts(), services(),
	}
}
