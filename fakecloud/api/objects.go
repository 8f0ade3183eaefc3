package api

import (
	"fmt"
	"strconv"
	"time"

	"drydock.dev/drydock/fakecloud"
)

// The API's objects, each as its clients decode it.

type regionObject struct {
	Name      string   `json:"name"`
	Slug      string   `json:"slug"`
	Sizes     []string `json:"sizes"`
	Features  []string `json:"features"`
	Available bool     `json:"available"`
}

var regionFeatures = []string{"private_networking", "backups", "ipv6", "metadata", "install_agent", "storage", "image_transfer"}

func region(slug string) regionObject {
	r, _ := fakecloud.RegionBySlug(slug)
	return regionObject{Name: r.Name, Slug: r.Slug, Sizes: sizeSlugs(), Features: regionFeatures, Available: true}
}

func sizeSlugs() []string {
	var out []string
	for _, s := range fakecloud.Sizes() {
		out = append(out, s.Slug)
	}
	return out
}

type volumeObject struct {
	ID              fakecloud.VolumeID    `json:"id"`
	Region          regionObject          `json:"region"`
	DropletIDs      []fakecloud.DropletID `json:"droplet_ids"`
	Name            string                `json:"name"`
	Description     string                `json:"description"`
	SizeGigabytes   int64                 `json:"size_gigabytes"`
	CreatedAt       string                `json:"created_at"`
	FilesystemType  string                `json:"filesystem_type"`
	FilesystemLabel string                `json:"filesystem_label"`
	Tags            []string              `json:"tags"`
}

func volume(v fakecloud.Volume) volumeObject {
	o := volumeObject{ID: v.ID, Region: region(v.Region), DropletIDs: []fakecloud.DropletID{}, Name: v.Name, Description: v.Description,
		SizeGigabytes: v.SizeGiB, CreatedAt: stamp(v.Created), FilesystemType: v.FilesystemType, FilesystemLabel: v.FilesystemLabel, Tags: notNil(v.Tags)}
	o.DropletIDs = append(o.DropletIDs, v.Droplets()...)
	return o
}

type actionObject struct {
	ID           fakecloud.ActionID     `json:"id"`
	Status       fakecloud.ActionStatus `json:"status"`
	Type         fakecloud.ActionType   `json:"type"`
	StartedAt    string                 `json:"started_at"`
	CompletedAt  *string                `json:"completed_at"`
	ResourceID   *fakecloud.DropletID   `json:"resource_id"` // a number, so null for volumes
	ResourceType string                 `json:"resource_type"`
	Region       regionObject           `json:"region"`
	RegionSlug   string                 `json:"region_slug"`
}

func action(a fakecloud.Action) actionObject {
	o := actionObject{ID: a.ID, Status: a.Status, Type: a.Type, StartedAt: stamp(a.Started), ResourceType: "backend", Region: region(a.Region), RegionSlug: a.Region}
	if !a.Ended.IsZero() {
		t := stamp(a.Ended)
		o.CompletedAt = &t
	}
	if a.Volume == "" {
		o.ResourceType, o.ResourceID = "droplet", &a.Droplet
	}
	return o
}

type snapshotObject struct {
	ID            fakecloud.SnapshotID `json:"id"`
	Name          string               `json:"name"`
	Regions       []string             `json:"regions"`
	CreatedAt     string               `json:"created_at"`
	ResourceID    fakecloud.VolumeID   `json:"resource_id"`
	ResourceType  string               `json:"resource_type"`
	MinDiskSize   int64                `json:"min_disk_size"`
	SizeGigabytes float64              `json:"size_gigabytes"`
	Tags          []string             `json:"tags"`
}

func snapshot(s fakecloud.Snapshot) snapshotObject {
	return snapshotObject{ID: s.ID, Name: s.Name, Regions: []string{s.Region}, CreatedAt: stamp(s.Created), ResourceID: s.Volume, ResourceType: "volume",
		MinDiskSize: s.SizeGiB, SizeGigabytes: float64(s.Bytes) / float64(fakecloud.GiB), Tags: notNil(s.Tags)}
}

type dropletObject struct {
	ID               fakecloud.DropletID     `json:"id"`
	Name             string                  `json:"name"`
	Memory           int                     `json:"memory"`
	VCPUs            int                     `json:"vcpus"`
	Disk             int                     `json:"disk"`
	DiskInfo         []diskObject            `json:"disk_info"`
	Locked           bool                    `json:"locked"`
	Status           fakecloud.DropletStatus `json:"status"`
	Kernel           *struct{}               `json:"kernel"`
	CreatedAt        string                  `json:"created_at"`
	Features         []string                `json:"features"`
	BackupIDs        []int                   `json:"backup_ids"`
	NextBackupWindow *struct{}               `json:"next_backup_window"`
	SnapshotIDs      []int                   `json:"snapshot_ids"`
	Image            imageObject             `json:"image"`
	VolumeIDs        []fakecloud.VolumeID    `json:"volume_ids"`
	Size             sizeObject              `json:"size"`
	SizeSlug         string                  `json:"size_slug"`
	Networks         networks                `json:"networks"`
	Region           regionObject            `json:"region"`
	Tags             []string                `json:"tags"`
	VPC              string                  `json:"vpc_uuid"`
}

type diskObject struct {
	Type string     `json:"type"`
	Size diskAmount `json:"size"`
}

type diskAmount struct {
	Amount int    `json:"amount"`
	Unit   string `json:"unit"`
}

type imageObject struct {
	ID            int64    `json:"id"`
	Name          string   `json:"name"`
	Distribution  string   `json:"distribution"`
	Slug          string   `json:"slug"`
	Public        bool     `json:"public"`
	Regions       []string `json:"regions"`
	CreatedAt     string   `json:"created_at"`
	Type          string   `json:"type"`
	MinDiskSize   int      `json:"min_disk_size"`
	SizeGigabytes float64  `json:"size_gigabytes"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	Status        string   `json:"status"`
}

type networks struct {
	V4 []network `json:"v4"`
	V6 []network `json:"v6"`
}

type network struct {
	IPAddress string `json:"ip_address"`
	Netmask   string `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

func droplet(d fakecloud.Droplet) dropletObject {
	size, _ := fakecloud.SizeBySlug(d.Size)
	o := dropletObject{ID: d.ID, Name: d.Name, Memory: size.MemoryMB, VCPUs: size.CPUs, Disk: size.DiskGB, DiskInfo: disks(size),
		Status: d.Status, CreatedAt: stamp(d.Created), Features: []string{"private_networking", "droplet_agent"}, BackupIDs: []int{}, SnapshotIDs: []int{},
		VolumeIDs: notNil(d.Volumes), Size: sizeView(size), SizeSlug: size.Slug, Region: region(d.Region), Tags: notNil(d.Tags), VPC: "00000000-0000-4000-8000-000000000001"}
	o.Image = imageObject{ID: 1, Name: d.Image, Distribution: "Debian", Slug: d.Image, Public: true, Regions: []string{d.Region},
		CreatedAt: stamp(d.Created), Type: "base", MinDiskSize: size.DiskGB, SizeGigabytes: 1, Tags: []string{}, Status: "available"}
	if n, err := strconv.ParseInt(d.Image, 10, 64); err == nil {
		o.Image.ID, o.Image.Slug = n, ""
	}
	o.Networks = networks{V4: []network{
		{privateIP(d), "255.255.0.0", "10.132.0.1", "private"},
		{publicIP(d), "255.255.255.0", "203.0.113.1", "public"},
	}, V6: []network{}}
	return o
}

// The addresses are made up, and reserved for examples: nothing listens there.
func privateIP(d fakecloud.Droplet) string {
	return fmt.Sprintf("10.132.%d.%d", d.ID>>8&0xff, d.ID&0xff)
}
func idText(d fakecloud.Droplet) string   { return strconv.FormatInt(int64(d.ID), 10) }
func publicIP(d fakecloud.Droplet) string { return fmt.Sprintf("203.0.113.%d", d.ID&0xff) }

type sizeObject struct {
	Slug         string       `json:"slug"`
	Memory       int          `json:"memory"`
	VCPUs        int          `json:"vcpus"`
	Disk         int          `json:"disk"`
	Transfer     float64      `json:"transfer"`
	PriceMonthly float64      `json:"price_monthly"`
	PriceHourly  float64      `json:"price_hourly"`
	Regions      []string     `json:"regions"`
	Available    bool         `json:"available"`
	Description  string       `json:"description"`
	DiskInfo     []diskObject `json:"disk_info"`
}

func sizeView(s fakecloud.Size) sizeObject {
	var in []string
	for _, r := range fakecloud.Regions() {
		in = append(in, r.Slug)
	}
	return sizeObject{Slug: s.Slug, Memory: s.MemoryMB, VCPUs: s.CPUs, Disk: s.DiskGB, Transfer: s.TransferTB, PriceMonthly: s.PriceMonthly,
		PriceHourly: s.PriceHourly, Regions: in, Available: true, Description: "Basic", DiskInfo: disks(s)}
}

func disks(s fakecloud.Size) []diskObject {
	return []diskObject{{Type: "local", Size: diskAmount{s.DiskGB, "gib"}}}
}

// stamp is RFC 3339 in UTC with whole seconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// notNil makes a list that is encoded as [] when empty.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func each[T, O any](list []T, view func(T) O) []O {
	out := make([]O, 0, len(list))
	for _, x := range list {
		out = append(out, view(x))
	}
	return out
}
