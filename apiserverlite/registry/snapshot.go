package registry

func addSnapshotKinds() error { return nil }

func snapshotKinds(Options) []*Resource { return nil }
