package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"drydock.dev/drydock/fakecloud"
)

// dropletID reads an id from a path; zero is nobody's.
func dropletID(s string) fakecloud.DropletID {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return fakecloud.DropletID(n)
}

func (s *server) listDroplets(c *call) (int, any, error) {
	q := c.r.URL.Query()
	if q.Get("type") == "gpus" {
		return 0, c.listed("droplets", []dropletObject{}, 0), nil
	}
	page, total := s.cloud.Droplets(fakecloud.DropletFilter{Name: q.Get("name"), Tag: q.Get("tag_name")}, c.page())
	return 0, c.listed("droplets", each(page, droplet), total), nil
}

func (s *server) getDroplet(c *call) (int, any, error) {
	d, err := s.cloud.Droplet(dropletID(c.param("id")))
	return 0, map[string]any{"droplet": droplet(d)}, err
}

func (s *server) createDroplet(c *call) (int, any, error) {
	var in struct {
		Name    string          `json:"name"`
		Names   []string        `json:"names"`
		Region  string          `json:"region"`
		Size    string          `json:"size"`
		Image   json.RawMessage `json:"image"`
		Tags    []string        `json:"tags"`
		Volumes []volumeRef     `json:"volumes"`
		// What the machine is given; here, what its metadata service answers.
		UserData string `json:"user_data"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	names, many := in.Names, len(in.Names) > 0
	if !many {
		names = []string{in.Name}
	}
	switch {
	case len(in.UserData) > 64<<10:
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: "user_data must not be longer than 64 KiB"}
	case len(names) > 10:
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: "at most 10 droplets can be created at once"}
	case many && len(in.Volumes) > 0:
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: fakecloud.TextAllocations}
	}
	n := fakecloud.NewDroplet{Region: in.Region, Size: in.Size, Image: strings.Trim(string(in.Image), `"`), Tags: in.Tags, UserData: in.UserData}
	if n.Image == "null" {
		n.Image = ""
	}
	if n.Region == "" {
		n.Region = s.cloud.Region()
	}
	for _, ref := range in.Volumes {
		id, err := s.resolve(ref, n.Region)
		if err != nil {
			return 0, nil, err
		}
		n.Volumes = append(n.Volumes, id)
	}
	var wanted []fakecloud.NewDroplet
	for _, name := range names {
		n.Name = name
		wanted = append(wanted, n)
	}
	all, started, err := s.cloud.CreateDroplets(c.r.Context(), wanted)
	if err != nil {
		return 0, nil, err
	}
	made := each(all, droplet)
	actions := each(started, func(a fakecloud.Action) map[string]any {
		return map[string]any{"id": a.ID, "rel": "create", "href": c.url("/v2/actions/" + strconv.FormatInt(int64(a.ID), 10))}
	})
	body := map[string]any{"links": map[string]any{"actions": actions}}
	if many {
		body["droplets"] = made
	} else {
		body["droplet"] = made[0]
	}
	return http.StatusAccepted, body, nil
}

// volumeRef is a volume in a droplet's creation: its id as a string, or an object with its id or name.
type volumeRef struct{ ID, Name string }

// UnmarshalJSON takes both forms: the documented one and the one that godo sends.
func (v *volumeRef) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &v.ID) == nil {
		return nil
	}
	type plain volumeRef
	return json.Unmarshal(b, (*plain)(v))
}

func (s *server) resolve(ref volumeRef, region string) (fakecloud.VolumeID, error) {
	if ref.ID != "" {
		return fakecloud.VolumeID(ref.ID), nil
	}
	v, err := s.cloud.VolumeByName(ref.Name, region)
	if err != nil {
		return "", &fakecloud.Error{Kind: fakecloud.Invalid, Text: fakecloud.TextAllocations}
	}
	return v.ID, nil
}

func (s *server) deleteDroplet(c *call) (int, any, error) {
	return http.StatusNoContent, nil, s.cloud.DeleteDroplet(c.r.Context(), dropletID(c.param("id")))
}

func (s *server) deleteTaggedDroplets(c *call) (int, any, error) {
	tag := c.r.URL.Query().Get("tag_name")
	if tag == "" {
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: "tag_name is needed to delete droplets without an id"}
	}
	for {
		// Deleted ones leave the list, so the first page is always the rest.
		page, _ := s.cloud.Droplets(fakecloud.DropletFilter{Tag: tag}, fakecloud.Page{Size: fakecloud.MaxPageSize})
		if len(page) == 0 {
			return http.StatusNoContent, nil, nil
		}
		for _, d := range page {
			if err := s.cloud.DeleteDroplet(c.r.Context(), d.ID); err != nil && fakecloud.KindOf(err) != fakecloud.NotFound {
				return 0, nil, err
			}
		}
	}
}

func (s *server) startDropletAction(c *call) (int, any, error) {
	var in struct {
		Type string `json:"type"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	a, err := s.cloud.StartDroplet(c.r.Context(), dropletID(c.param("id")), fakecloud.ActionType(in.Type))
	return http.StatusCreated, map[string]any{"action": action(a)}, err
}

func (s *server) listDropletActions(c *call) (int, any, error) {
	d, err := s.cloud.Droplet(dropletID(c.param("id")))
	if err != nil {
		return 0, nil, err
	}
	page, total := s.cloud.Actions(fakecloud.ActionFilter{Droplet: d.ID}, c.page())
	return 0, c.listed("actions", each(page, action), total), nil
}
