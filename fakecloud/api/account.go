package api

import (
	"cmp"

	"drydock.dev/drydock/fakecloud"
)

func (s *server) getAccount(*call) (int, any, error) {
	limits := s.cloud.Settings().Limits
	return 0, map[string]any{"account": map[string]any{
		"droplet_limit": cmp.Or(limits.Droplets, 25), "floating_ip_limit": 5, "reserved_ip_limit": 5, "volume_limit": limits.Volumes,
		"email": "dev@example.test", "name": "dev", "uuid": "b6f789dbf6d9156cace5f3c78dc9851d957381ef", "email_verified": true,
		"status": "active", "status_message": "",
		"team": map[string]string{"uuid": "5df3e3004a17e242b7c20ca6c9fc25b701a47ece", "name": "My Team"},
	}}, nil
}

func (s *server) listRegions(c *call) (int, any, error) {
	all := fakecloud.Regions()
	if _, known := fakecloud.RegionBySlug(s.cloud.Region()); !known {
		all = append(all, fakecloud.Region{Slug: s.cloud.Region(), Name: s.cloud.Region()})
	}
	part := cut(all, c.page())
	return 0, c.listed("regions", each(part, func(r fakecloud.Region) regionObject { return region(r.Slug) }), len(all)), nil
}

func (s *server) listSizes(c *call) (int, any, error) {
	all := fakecloud.Sizes()
	return 0, c.listed("sizes", each(cut(all, c.page()), sizeView), len(all)), nil
}

// cut takes a page out of a short list.
func cut[T any](all []T, p fakecloud.Page) []T {
	from := len(all)
	if p.Number-1 <= len(all)/p.Size {
		from = min((p.Number-1)*p.Size, len(all))
	}
	return all[from:min(from+p.Size, len(all))]
}
