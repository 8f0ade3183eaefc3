package registry

// coreKinds are the kinds of group "", in the order of discovery.
func coreKinds(o Options) []*Resource {
	return []*Resource{
		configMaps(), coreEvents(), limitRanges(), namespaces(), nodes(), persistentVolumeClaims(o), persistentVolumes(o.Clock), pods(o), podTemplates(),
		replicationControllers(), resourceQuotas(), secrets(), serviceAccounts(), services(),
	}
}
