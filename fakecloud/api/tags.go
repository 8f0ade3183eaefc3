package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"drydock.dev/drydock/fakecloud"
)

type taggedObject struct {
	Count         int    `json:"count"`
	LastTaggedURI string `json:"last_tagged_uri,omitempty"`
}

func (c *call) tag(t fakecloud.Tag) map[string]any {
	droplets, volumes, snapshots := taggedObject{Count: len(t.Droplets)}, taggedObject{Count: len(t.Volumes)}, taggedObject{Count: len(t.Snapshots)}
	all := taggedObject{Count: droplets.Count + volumes.Count + snapshots.Count}
	if n := droplets.Count; n > 0 {
		droplets.LastTaggedURI = c.url(fmt.Sprintf("/v2/droplets/%d", t.Droplets[n-1]))
	}
	if n := volumes.Count; n > 0 {
		volumes.LastTaggedURI = c.url("/v2/volumes/" + string(t.Volumes[n-1]))
	}
	if n := snapshots.Count; n > 0 {
		snapshots.LastTaggedURI = c.url("/v2/snapshots/" + string(t.Snapshots[n-1]))
	}
	for _, o := range []taggedObject{droplets, snapshots, volumes} {
		if o.LastTaggedURI != "" {
			all.LastTaggedURI = o.LastTaggedURI
		}
	}
	return map[string]any{"name": t.Name, "resources": map[string]any{
		"count": all.Count, "last_tagged_uri": all.LastTaggedURI, "droplets": droplets, "images": taggedObject{},
		"volumes": volumes, "volume_snapshots": snapshots, "databases": taggedObject{},
	}}
}

func (s *server) listTags(c *call) (int, any, error) {
	page, total := s.cloud.Tags(c.page())
	return 0, c.listed("tags", each(page, c.tag), total), nil
}

func (s *server) createTag(c *call) (int, any, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	t, err := s.cloud.CreateTag(c.r.Context(), in.Name)
	if fakecloud.KindOf(err) == fakecloud.Invalid {
		// The one error with a shape of its own.
		return 0, nil, &statusError{status: http.StatusBadRequest, text: err.Error(),
			body: map[string]any{"error": err.Error(), "messages": nil, "root_causes": []string{err.Error()}}}
	}
	return http.StatusCreated, map[string]any{"tag": c.tag(t)}, err
}

func (s *server) getTag(c *call) (int, any, error) {
	t, err := s.cloud.Tag(c.param("tag"))
	return 0, map[string]any{"tag": c.tag(t)}, err
}

func (s *server) deleteTag(c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.cloud.DeleteTag(c.r.Context(), c.param("tag"))
}

func (s *server) tagResources(c *call) (int, any, error) {
	return s.tagging(c, fakecloud.Tagging{Tag: c.param("tag")})
}

func (s *server) untagResources(c *call) (int, any, error) {
	return s.tagging(c, fakecloud.Tagging{Tag: c.param("tag"), Remove: true})
}

func (s *server) tagging(c *call, t fakecloud.Tagging) (int, any, error) {
	var in struct {
		Resources []struct {
			ID   json.RawMessage        `json:"resource_id"` // a string, or the number of a droplet
			Type fakecloud.ResourceType `json:"resource_type"`
		} `json:"resources"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	for _, r := range in.Resources {
		t.Resources = append(t.Resources, fakecloud.Resource{ID: strings.Trim(string(r.ID), `"`), Type: r.Type})
	}
	return http.StatusNoContent, nil, s.cloud.TagResources(c.r.Context(), t)
}
