package fakecloud

// The real cloud's public list prices of block storage, in US dollars for a GiB and
// month. A volume costs its size, attached or not; a snapshot what its data occupies,
// but not less than a cent. The source is docs.digitalocean.com, pages "Volumes Pricing" and "Snapshots Pricing".
const (
	VolumeGiBMonth   = 0.10
	SnapshotGiBMonth = 0.06
	SnapshotMinimum  = 0.01
)

// MonthlyUSD is what the volume costs.
func (v Volume) MonthlyUSD() float64 { return float64(v.SizeGiB) * VolumeGiBMonth }

// MonthlyUSD is what the snapshot costs.
func (s Snapshot) MonthlyUSD() float64 {
	return max(SnapshotMinimum, float64(s.Bytes)/float64(GiB)*SnapshotGiBMonth)
}

// MonthlyUSD is what the droplet costs, switched on or off.
func (d Droplet) MonthlyUSD() float64 {
	size, _ := SizeBySlug(d.Size)
	return size.PriceMonthly
}
