package fakecloud

// check is the table of reasons to refuse an action. The caller holds mu.
func (c *Cloud) check(v *Volume, r Request) error {
	if r.Region != "" && r.Region != v.Region {
		return fail(Invalid, "volume %s is in region %s, not in %s", v.ID, v.Region, r.Region)
	}
	if err := checkTags(r.Tags); err != nil {
		return err
	}
	// Before anything that a client takes for success, such as "not attached" to a
	// detach: an attach in progress will still attach it.
	if c.busy[v.ID] != 0 {
		return fail(Invalid, TextPending)
	}
	switch r.Type {
	case AttachVolume:
		return c.checkAttach(v, r.Droplet, r.ReadOnly)
	case DetachVolume:
		return c.checkDetach(v, r.Droplet)
	case ResizeVolume:
		return c.checkResize(v, r.SizeGiB)
	}
	return fail(Invalid, "unknown action type %q: known are attach, detach and resize", r.Type)
}

func (c *Cloud) checkAttach(v *Volume, id DropletID, readOnly bool) error {
	d := c.liveDroplet(id)
	switch {
	case d == nil:
		return notFound()
	case v.Droplet != 0 && (!v.Shared || v.attachedTo(id)):
		return fail(Invalid, TextAttached)
	case v.Droplet != 0 && v.ReadOnly != readOnly:
		return fail(Invalid, "volume %s is attached to another droplet with read_only %v: one device has one mode", v.ID, v.ReadOnly)
	case d.Region != v.Region && !c.settings.Rules.AnyRegion:
		return fail(Invalid, "volume %s is in region %s and droplet %d in region %s", v.ID, v.Region, d.ID, d.Region)
	case c.locked(id):
		return fail(Invalid, TextPending)
	}
	if limit := c.settings.Limits.VolumesPerDroplet; limit >= 0 && len(c.state.onDroplet[id])+c.attaching(id) >= limit {
		return fail(Invalid, TextDropletFull)
	}
	return nil
}

func (c *Cloud) checkDetach(v *Volume, id DropletID) error {
	switch {
	case id == 0:
		return fail(Invalid, TextNoAttachment)
	case c.liveDroplet(id) == nil:
		return notFound()
	case c.locked(id):
		return fail(Invalid, TextPending)
	case v.attachedTo(id):
		return nil
	case c.settings.Limits.DetachInvalid:
		return fail(Invalid, TextNoAttachment)
	}
	return fail(NotFound, TextNotAttached)
}

func (c *Cloud) checkResize(v *Volume, size int64) error {
	switch limit, most := c.settings.Limits.CapacityGiB, c.settings.Limits.MaxSizeGiB; {
	case size > most:
		return fail(Invalid, "error resizing volume: size_gigabytes must not be larger than %d, not %d", most, size)
	case size <= v.SizeGiB && c.settings.Rules.LenientResize:
	case size <= v.SizeGiB:
		return fail(Invalid, "error resizing volume: size_gigabytes must be larger than the current %d, not %d", v.SizeGiB, size)
	case limit > 0 && c.state.capacityGiB+c.held.capacityGiB+size-v.SizeGiB > limit:
		return fail(Forbidden, TextResizeQuota)
	}
	return nil
}

// locked tells whether a pending event on the droplet forbids another. The caller holds mu.
func (c *Cloud) locked(id DropletID) bool {
	return c.pending[id] > 0 && !c.settings.Limits.NoDropletLock
}

// attaching counts the volumes on their way to the droplet. The caller holds mu.
func (c *Cloud) attaching(id DropletID) (n int) {
	for _, action := range c.busy {
		if a := c.state.actions[action]; a.Type == AttachVolume && a.Droplet == id {
			n++
		}
	}
	return n
}
