package fakecloud

import "context"

// Action returns one action.
func (c *Cloud) Action(id ActionID) (Action, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a := c.state.actions[id]
	if a == nil {
		return Action{}, notFound()
	}
	return *a, nil
}

// Wait returns the action once it is no longer in progress, or as it stands when
// ctx or the cloud ends.
func (c *Cloud) Wait(ctx context.Context, id ActionID) (Action, error) {
	c.mu.RLock()
	ended := c.ended[id]
	c.mu.RUnlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
		case <-c.life.Context().Done():
		}
	}
	return c.Action(id)
}

// ActionFilter selects actions; zero fields select all.
type ActionFilter struct {
	Volume  VolumeID
	Droplet DropletID // actions on the droplet itself
}

// Actions returns a page of actions, newest first, and how many there are on all pages.
func (c *Cloud) Actions(f ActionFilter, p Page) (page []Action, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ids := c.state.actionIDs
	switch {
	case f.Volume != "":
		ids = c.state.ofVolume[f.Volume]
	case f.Droplet != 0:
		ids = c.state.ofDroplet[f.Droplet]
	}
	from, to := p.span(len(ids))
	page = make([]Action, 0, to-from)
	for i := from; i < to; i++ {
		page = append(page, *c.state.actions[ids[len(ids)-1-i]])
	}
	return page, len(ids)
}
