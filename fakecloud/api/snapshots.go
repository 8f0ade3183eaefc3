package api

import (
	"net/http"
	"slices"
	"strconv"

	"drydock.dev/drydock/fakecloud"
)

func (s *server) createSnapshot(c *call) (int, any, error) {
	var in struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	made, err := s.cloud.CreateSnapshot(c.r.Context(), fakecloud.NewSnapshot{Volume: fakecloud.VolumeID(c.param("id")), Name: in.Name, Tags: in.Tags})
	return http.StatusCreated, map[string]any{"snapshot": snapshot(made)}, err
}

func (s *server) listVolumeSnapshots(c *call) (int, any, error) {
	id := fakecloud.VolumeID(c.param("id"))
	if _, err := s.cloud.Volume(id); err != nil {
		return 0, nil, err
	}
	return s.snapshotPage(c, fakecloud.SnapshotFilter{Volume: id})
}

func (s *server) listSnapshots(c *call) (int, any, error) {
	q := c.r.URL.Query()
	switch q.Get("resource_type") {
	case "", "volume":
		return s.snapshotPage(c, fakecloud.SnapshotFilter{Region: q.Get("region")})
	case "droplet": // there are none
		return 0, c.listed("snapshots", []snapshotObject{}, 0), nil
	}
	return 0, nil, &statusError{status: http.StatusBadRequest, text: "resource_type must be droplet or volume"}
}

func (s *server) snapshotPage(c *call, f fakecloud.SnapshotFilter) (int, any, error) {
	page, total := s.cloud.Snapshots(f, c.page())
	return 0, c.listed("snapshots", each(page, snapshot), total), nil
}

func (s *server) getSnapshot(c *call) (int, any, error) {
	if n, err := strconv.ParseInt(c.param("id"), 10, 64); err == nil && s.isImage(n) {
		return 0, nil, &statusError{status: http.StatusBadRequest, text: "the resource is not a snapshot"}
	}
	found, err := s.cloud.Snapshot(fakecloud.SnapshotID(c.param("id")))
	return 0, map[string]any{"snapshot": snapshot(found)}, err
}

// isImage tells whether a number is that of an image which some droplet was made from.
func (s *server) isImage(n int64) bool {
	return slices.ContainsFunc(everything(func(p fakecloud.Page) ([]fakecloud.Droplet, int) {
		return s.cloud.Droplets(fakecloud.DropletFilter{}, p)
	}), func(d fakecloud.Droplet) bool { return droplet(d).Image.ID == n })
}

func (s *server) deleteSnapshot(c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.cloud.DeleteSnapshot(c.r.Context(), fakecloud.SnapshotID(c.param("id")))
}
