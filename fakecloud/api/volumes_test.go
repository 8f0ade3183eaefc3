package api_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/digitalocean/godo"
)

func TestVolumeLife(t *testing.T) {
	each(t, func(w *world) {
		ctx, n1 := w.Context(), w.droplet("n1")
		v := w.volume("pvc-1", 2)
		if v.SizeGigaBytes != 2 || v.Region == nil || v.Region.Slug != "nyc3" || len(v.DropletIDs) != 0 || v.CreatedAt.IsZero() {
			w.Errorf("created %+v", v)
		}
		got, _, err := w.do.Storage.GetVolume(ctx, v.ID)
		w.must(err)
		if got.Name != "pvc-1" {
			w.Errorf("got %+v", got)
		}
		link := filepath.Join(w.dir, "nodes/n1/dev/disk/by-id/scsi-0DO_Volume_pvc-1")

		a := w.completed(w.do.StorageActions.Attach(ctx, v.ID, n1))
		if a.Type != "attach_volume" || a.ResourceType != "backend" || a.RegionSlug != "nyc3" {
			w.Errorf("action %+v", a)
		}
		if info, err := os.Stat(link); err != nil {
			w.Errorf("the link after the attach: %v", err)
		} else if w.devices.Kind() == "sim" && info.Size() != 2<<30 {
			w.Errorf("the device has %d bytes", info.Size())
		}
		d, _, err := w.do.Droplets.Get(ctx, n1)
		w.must(err)
		if len(d.VolumeIDs) != 1 || d.VolumeIDs[0] != v.ID {
			w.Errorf("the droplet's volumes: %v", d.VolumeIDs)
		}
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.refused(err, 409, "failed to delete volume: attached volume cannot be deleted")

		w.completed(w.do.StorageActions.Resize(ctx, v.ID, 3, "nyc3"))
		got, _, err = w.do.Storage.GetVolume(ctx, v.ID)
		w.must(err)
		if got.SizeGigaBytes != 3 || len(got.DropletIDs) != 1 || got.DropletIDs[0] != n1 {
			w.Errorf("after the resize: %+v", got)
		}

		w.completed(w.do.StorageActions.DetachByDropletID(ctx, v.ID, n1))
		if _, err := os.Lstat(link); !os.IsNotExist(err) {
			w.Errorf("the link after the detach: %v", err)
		}
		actions, _, err := w.do.StorageActions.List(ctx, v.ID, &godo.ListOptions{})
		w.must(err)
		if len(actions) != 3 || actions[0].Type != "detach_volume" || actions[2].Type != "attach_volume" {
			w.Errorf("history, newest first: %+v", actions)
		}
		_, err = w.do.Storage.DeleteVolume(ctx, v.ID)
		w.must(err)
		_, _, err = w.do.Storage.GetVolume(ctx, v.ID)
		w.refused(err, 404, "The resource you were accessing could not be found.")
	})
}
