package fakecloud

import (
	"slices"
	"time"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// Ids. Those of volumes and snapshots are UUIDs, those of droplets and actions
// are numbers that are never given out twice.
type (
	VolumeID   = blockdev.VolumeID
	SnapshotID = blockdev.SnapshotID
	DropletID  int64
	ActionID   int64
)

// GiB is the unit of volume sizes, in bytes.
const GiB = int64(1) << 30

// Sizes a volume can have, in GiB.
const (
	MinSizeGiB = 1
	MaxSizeGiB = 16384
)

// Volume is a disk of the cloud.
type Volume struct {
	ID              VolumeID
	Name            string
	Region          string // slug
	Description     string
	SizeGiB         int64
	Droplet         DropletID // zero when detached
	Created         time.Time
	FilesystemType  string
	FilesystemLabel string
	Tags            []string

	// Ours on top of the real cloud.
	Shared      bool        // may be attached to several droplets at once
	More        []DropletID // attachments beyond Droplet, of a shared volume
	ReadOnly    bool        // of its present attachments
	Performance Performance
}

// Droplets lists the droplets that a volume is attached to.
func (v *Volume) Droplets() []DropletID {
	if v.Droplet == 0 {
		return nil
	}
	return append([]DropletID{v.Droplet}, v.More...)
}

// attachedTo tells whether a volume is attached to a droplet.
func (v *Volume) attachedTo(id DropletID) bool {
	return v.Droplet == id && id != 0 || slices.Contains(v.More, id)
}

// attach adds a droplet to a copy of a volume.
func (v *Volume) attach(id DropletID) {
	if v.attachedTo(id) {
		return
	}
	if v.Droplet == 0 {
		v.Droplet = id
		return
	}
	v.More = append(slices.Clone(v.More), id)
}

// detach takes a droplet off a copy of a volume.
func (v *Volume) detach(id DropletID) {
	left := slices.DeleteFunc(v.Droplets(), func(d DropletID) bool { return d == id })
	v.Droplet, v.More = 0, nil
	if len(left) > 0 {
		v.Droplet, v.More = left[0], left[1:]
	} else {
		v.ReadOnly = false
	}
}

// Performance is what a volume may do to its disk. Zero numbers are no limit.
type Performance struct {
	Class          string `json:"class"`
	IOPS           int64  `json:"iops"`            // reads and writes, each, in a second
	ThroughputMiBs int64  `json:"throughput_mibs"` // reads and writes, each, in MiB a second
}

// DropletStatus is a droplet's state as the API words it.
type DropletStatus string

// The states of a droplet.
//
//	new --create--> active --power_off, shutdown--> off --power_on--> active
//	any --destroy--> destroyed (gone from the API; its volumes are released, then the record goes)
const (
	DropletNew       DropletStatus = "new"
	DropletActive    DropletStatus = "active"
	DropletOff       DropletStatus = "off"
	DropletDestroyed DropletStatus = "destroyed"
)

// Droplet is a virtual machine. Volumes is filled in on reading, in the order of their creation.
type Droplet struct {
	ID      DropletID
	Name    string
	Region  string
	Size    string // slug
	Image   string // slug or number, as it was asked for
	Status  DropletStatus
	Created time.Time
	Tags    []string
	Volumes []VolumeID
	// UserData is what its metadata service gives it.
	UserData string
}

// ActionType is the kind of an action as the API words it.
type ActionType string

// The actions on volumes, then those on droplets.
const (
	AttachVolume ActionType = "attach_volume"
	DetachVolume ActionType = "detach_volume"
	ResizeVolume ActionType = "resize"

	CreateDroplet ActionType = "create"
	PowerOn       ActionType = "power_on"
	PowerOff      ActionType = "power_off"
	Shutdown      ActionType = "shutdown"
	Reboot        ActionType = "reboot"
	PowerCycle    ActionType = "power_cycle"
	Destroy       ActionType = "destroy"
)

// ActionStatus is how far an action is.
type ActionStatus string

// The states of an action: in-progress, then one of the others for good.
const (
	InProgress ActionStatus = "in-progress"
	Completed  ActionStatus = "completed"
	Errored    ActionStatus = "errored"
)

// Action is one asynchronous piece of work. Volume is empty for an action on a
// droplet; Droplet is zero for a resize.
type Action struct {
	ID       ActionID
	Type     ActionType
	Status   ActionStatus
	Started  time.Time
	Ended    time.Time // zero while it is in progress
	Region   string
	Volume   VolumeID
	Droplet  DropletID
	SizeGiB  int64  // what a resize asks for
	ReadOnly bool   // of an attach; ours
	Error    string // why it is errored; the API does not show it, the log and the timeline do
}

// Snapshot is a full copy of a volume. It outlives the volume.
type Snapshot struct {
	ID      SnapshotID
	Name    string
	Region  string
	Volume  VolumeID
	SizeGiB int64 // of the volume when it was taken: the smallest disk that holds it
	Bytes   int64 // what the copy occupies
	Created time.Time
	Tags    []string
}

// Page selects part of a list. Zero values mean the first page of 20; Size above 200 is taken as 200.
type Page struct {
	Number int // from 1
	Size   int
}

// Bounds of a page's size.
const (
	DefaultPageSize = 20
	MaxPageSize     = 200
)

// Normal returns the page with defaults and bounds applied.
func (p Page) Normal() Page {
	if p.Number < 1 {
		p.Number = 1
	}
	if p.Size < 1 {
		p.Size = DefaultPageSize
	}
	p.Size = min(p.Size, MaxPageSize)
	return p
}

// span is the part [from, to) of total items.
func (p Page) span(total int) (from, to int) {
	p = p.Normal()
	from = total
	if p.Number-1 <= total/p.Size {
		from = min((p.Number-1)*p.Size, total)
	}
	return from, min(from+p.Size, total)
}
