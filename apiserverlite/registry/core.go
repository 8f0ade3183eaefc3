package registry

// coreKinds are the kinds of group "", in the order of discovery.
func coreKinds(o Options) []*Resource {
	return []*Resource{
		configMaps(), coreEvents(), namespaces(), nodes(), persistentVolumeClaims(), persistentVolumes(o.Clock), pods(), secrets(), serviceAccounts(),
	}
}
