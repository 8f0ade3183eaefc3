package fakecloud

import "slices"

// Region is a place of the cloud. All have block storage.
type Region struct{ Slug, Name string }

// Size is a kind of droplet.
type Size struct {
	Slug         string
	MemoryMB     int
	CPUs         int
	DiskGB       int
	TransferTB   float64
	PriceMonthly float64
	PriceHourly  float64
}

var regions = []Region{
	{"ams2", "Amsterdam 2"}, {"ams3", "Amsterdam 3"}, {"blr1", "Bangalore 1"}, {"fra1", "Frankfurt 1"}, {"lon1", "London 1"},
	{"nyc1", "New York 1"}, {"nyc2", "New York 2"}, {"nyc3", "New York 3"}, {"sfo1", "San Francisco 1"}, {"sfo2", "San Francisco 2"},
	{"sfo3", "San Francisco 3"}, {"sgp1", "Singapore 1"}, {"syd1", "Sydney 1"}, {"tor1", "Toronto 1"},
}

var sizes = []Size{
	{"s-1vcpu-1gb", 1024, 1, 25, 1, 6, 0.00893},
	{"s-1vcpu-2gb", 2048, 1, 50, 2, 12, 0.01786},
	{"s-2vcpu-2gb", 2048, 2, 60, 3, 18, 0.02679},
	{"s-2vcpu-4gb", 4096, 2, 80, 4, 24, 0.03571},
	{"s-4vcpu-8gb", 8192, 4, 160, 5, 48, 0.07143},
}

// Regions lists all regions by slug.
func Regions() []Region { return slices.Clone(regions) }

// Sizes lists the droplet sizes, smallest first.
func Sizes() []Size { return slices.Clone(sizes) }

// RegionBySlug finds a region; its name is the slug if it is none of the known ones.
func RegionBySlug(slug string) (Region, bool) {
	for _, r := range regions {
		if r.Slug == slug {
			return r, true
		}
	}
	return Region{Slug: slug, Name: slug}, false
}

// SizeBySlug finds a size; the smallest stands for an unknown one.
func SizeBySlug(slug string) (Size, bool) {
	for _, s := range sizes {
		if s.Slug == slug {
			return s, true
		}
	}
	return sizes[0], false
}

// region tells whether volumes can be in it: the configured one always exists.
func (c *Cloud) region(slug string) bool {
	_, ok := RegionBySlug(slug)
	return ok || slug == c.cfg.Region
}
