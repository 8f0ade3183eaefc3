package registry

type schemas struct{}

func loadSchemas([]*Resource) (*schemas, error) { return &schemas{}, nil }
