package api

import (
	"net/http"

	"drydock.dev/drydock/fakecloud"
)

func (s *server) listVolumes(c *call) (int, any, error) {
	f := fakecloud.VolumeFilter{Name: c.nameParam(), Region: c.r.URL.Query().Get("region")}
	page, total := s.cloud.Volumes(f, c.page())
	return 0, c.listed("volumes", each(page, volume), total), nil
}

func (s *server) createVolume(c *call) (int, any, error) {
	var in struct {
		Name            string   `json:"name"`
		Region          string   `json:"region"`
		SizeGigabytes   int64    `json:"size_gigabytes"`
		Description     string   `json:"description"`
		SnapshotID      string   `json:"snapshot_id"`
		FilesystemType  string   `json:"filesystem_type"`
		FilesystemLabel string   `json:"filesystem_label"`
		Tags            []string `json:"tags"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	v, err := s.cloud.CreateVolume(c.r.Context(), fakecloud.NewVolume{
		Name: in.Name, Region: in.Region, SizeGiB: in.SizeGigabytes, Description: in.Description, Snapshot: fakecloud.SnapshotID(in.SnapshotID),
		FilesystemType: in.FilesystemType, FilesystemLabel: in.FilesystemLabel, Tags: in.Tags,
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, map[string]any{"volume": volume(v), "links": links{}}, nil
}

func (s *server) getVolume(c *call) (int, any, error) {
	v, err := s.cloud.Volume(fakecloud.VolumeID(c.param("id")))
	return 0, map[string]any{"volume": volume(v)}, err
}

func (s *server) deleteVolume(c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.cloud.DeleteVolume(c.r.Context(), fakecloud.VolumeID(c.param("id")))
}

func (s *server) deleteVolumeByName(c *call) (int, any, error) {
	name, region := c.nameParam(), c.r.URL.Query().Get("region")
	if name == "" || region == "" {
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: "name and region are both needed to delete a volume without its id"}
	}
	v, err := s.cloud.VolumeByName(name, region)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.cloud.DeleteVolume(c.r.Context(), v.ID)
}
