package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/internal/check"
)

// TestAccount: a volume in use is no leftover; what somebody makes beside Kubernetes is, with its price.
func TestAccount(t *testing.T) {
	c := begin(t, Options{Devices: "sim"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingImmediate))
	must(t, u.claim(ctx, "data"))
	must(t, u.pod(ctx, "p", "data", "n1"))
	_, err := u.running(ctx, "p")
	must(t, err)
	charges, err := c.Account(ctx, accountSettle)
	must(t, err)
	if len(charges) != 0 {
		t.Errorf("leftovers of a healthy cluster: %v", charges)
	}

	cloud, err := c.cloudClient()
	must(t, err)
	v, _, err := cloud.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{Name: "by-hand", Region: Region, SizeGigaBytes: 100})
	must(t, err)
	droplets, _, err := cloud.Droplets.ListByName(ctx, "n2", nil)
	must(t, err)
	a, _, err := cloud.StorageActions.Attach(ctx, v.ID, droplets[0].ID)
	must(t, err)
	for a.Status == godo.ActionInProgress {
		a, _, err = cloud.StorageActions.Get(ctx, v.ID, a.ID)
		must(t, err)
	}
	_, _, err = cloud.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{VolumeID: v.ID, Name: "by-hand"})
	must(t, err)
	_, _, err = cloud.Droplets.Create(ctx, &godo.DropletCreateRequest{Name: "stray", Region: Region, Size: "s-1vcpu-2gb", Image: godo.DropletCreateImage{Slug: "debian-13-x64"}})
	must(t, err)
	charges, err = c.Account(ctx, 0)
	must(t, err)
	var kinds []string
	for _, x := range charges {
		kinds = append(kinds, x.Kind)
	}
	if !slices.Equal(kinds, []string{"attachment", "droplet", "snapshot", "volume"}) || charges[3].Month != 10 || check.Total(charges) < 22 {
		t.Errorf("leftovers: %v", charges)
	}
}
