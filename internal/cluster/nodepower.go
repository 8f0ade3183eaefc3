package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"
)

// powerOff takes the machine's power away: programs end where they are, the cloud pulls
// the disks, so what was not synced is lost, and the mounts go. Files of the node stay.
func (m *machine) powerOff(ctx context.Context) error {
	if m.isOff() {
		return nil
	}
	m.mu.Lock()
	m.off = true // nobody comes any more
	m.mu.Unlock()
	m.expel(ctx, "node "+m.name+" is powered off")
	var errs []error
	for _, p := range slices.Backward(m.parts()) {
		errs = append(errs, m.c.parts.kill(p))
	}
	errs = append(errs, m.switchDroplet(ctx, "off"), m.c.forgetMounts(m.name))
	return errors.Join(errs...)
}

// powerOn boots the machine.
func (m *machine) powerOn(ctx context.Context) error {
	if !m.isOff() {
		return nil
	}
	if err := m.c.clearNode(m.name); err != nil {
		return err
	}
	if err := m.switchDroplet(ctx, "on"); err != nil {
		return err
	}
	m.mu.Lock()
	m.off = false
	m.boots++
	m.mu.Unlock()
	for _, p := range m.parts() {
		if !m.has(p) {
			continue
		}
		if err := m.c.parts.start(p); err != nil {
			return err
		}
	}
	return nil
}

// switchDroplet turns the node's droplet on or off, by the cloud's own API. A cloud that has
// not come up yet does so when it does.
func (m *machine) switchDroplet(ctx context.Context, to string) error {
	select {
	case <-m.c.cloud.answered:
	default:
		return nil
	}
	client := godo.NewFromToken(m.c.Token())
	if err := godo.SetBaseURL(m.c.URL() + "/")(client); err != nil {
		return err
	}
	list, _, err := client.Droplets.ListByName(ctx, m.name, nil)
	if err != nil {
		return fmt.Errorf("find the droplet: %w", err)
	}
	if len(list) != 1 {
		return fmt.Errorf("find the droplet: the cloud has %d called %s", len(list), m.name)
	}
	do := client.DropletActions.PowerOff
	if to == "on" {
		do = client.DropletActions.PowerOn
	}
	a, _, err := do(ctx, list[0].ID)
	if err != nil {
		if strings.Contains(err.Error(), "already powered "+to) {
			return nil
		}
		return fmt.Errorf("switch the droplet %s: %w", to, err)
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for a.Status == "in-progress" {
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("switch the droplet %s: %w", to, context.Cause(ctx))
		}
		if a, _, err = client.DropletActions.Get(ctx, list[0].ID, a.ID); err != nil {
			return fmt.Errorf("switch the droplet %s: %w", to, err)
		}
	}
	if a.Status != godo.ActionCompleted {
		return fmt.Errorf("switch the droplet %s: the cloud's action ended as %s", to, a.Status)
	}
	return nil
}
