package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/fakecloud"
)

// actionRequest is the body of all volume actions.
type actionRequest struct {
	Type          string              `json:"type"`
	DropletID     fakecloud.DropletID `json:"droplet_id"`
	SizeGigabytes int64               `json:"size_gigabytes"`
	Region        string              `json:"region"`
	VolumeName    string              `json:"volume_name"`
	Tags          []string            `json:"tags"`
	ReadOnly      bool                `json:"read_only"` // heard under our own prefix only
}

var actionTypes = map[string]fakecloud.ActionType{
	"attach": fakecloud.AttachVolume, "detach": fakecloud.DetachVolume, "resize": fakecloud.ResizeVolume,
}

func (s *server) startAction(c *call) (int, any, error) {
	var in actionRequest
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	return s.start(c, fakecloud.VolumeID(c.param("id")), in, fakecloud.Request{})
}

// startActionByName attaches and detaches; it cannot resize.
func (s *server) startActionByName(c *call) (int, any, error) {
	var in actionRequest
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	if in.Type == "resize" {
		return 0, nil, &statusError{status: http.StatusUnprocessableEntity, text: "a volume is resized by its id, not by its name"}
	}
	if in.Region == "" {
		in.Region = s.cloud.Region()
	}
	v, err := s.cloud.VolumeByName(in.VolumeName, in.Region)
	if err != nil {
		return 0, nil, err
	}
	return s.start(c, v.ID, in, fakecloud.Request{})
}

// start sends an action on its way. Of extra, what the real API does not have counts.
func (s *server) start(c *call, id fakecloud.VolumeID, in actionRequest, extra fakecloud.Request) (int, any, error) {
	kind, ok := actionTypes[in.Type]
	if !ok {
		kind = fakecloud.ActionType(in.Type)
	}
	a, err := s.cloud.Start(c.r.Context(), fakecloud.Request{
		Type: kind, Volume: id, Droplet: in.DropletID, SizeGiB: in.SizeGigabytes, Region: in.Region, Tags: in.Tags, ReadOnly: extra.ReadOnly, Fail: c.failure})
	return http.StatusAccepted, map[string]any{"action": action(a)}, err
}

func (s *server) listVolumeActions(c *call) (int, any, error) {
	id := fakecloud.VolumeID(c.param("id"))
	if _, err := s.cloud.Volume(id); err != nil {
		return 0, nil, err
	}
	page, total := s.cloud.Actions(fakecloud.ActionFilter{Volume: id}, c.page())
	return 0, c.listed("actions", each(page, action), total), nil
}

func (s *server) listActions(c *call) (int, any, error) {
	page, total := s.cloud.Actions(fakecloud.ActionFilter{}, c.page())
	return 0, c.listed("actions", each(page, action), total), nil
}

func (s *server) getVolumeAction(c *call) (int, any, error) {
	id := fakecloud.VolumeID(c.param("id"))
	return s.oneAction(c, func(a fakecloud.Action) bool { return a.Volume == id })
}

func (s *server) getDropletAction(c *call) (int, any, error) {
	id := dropletID(c.param("id"))
	return s.oneAction(c, func(a fakecloud.Action) bool { return a.Volume == "" && a.Droplet == id })
}

func (s *server) getAction(c *call) (int, any, error) {
	return s.oneAction(c, func(fakecloud.Action) bool { return true })
}

// oneAction answers an action that belongs where it was asked for, at once or, by
// the caller's wish, when it has ended.
func (s *server) oneAction(c *call, belongs func(fakecloud.Action) bool) (int, any, error) {
	n, err := strconv.ParseInt(c.param("action"), 10, 64)
	if err != nil {
		return 0, nil, &statusError{status: http.StatusNotFound}
	}
	a, err := s.cloud.Action(fakecloud.ActionID(n))
	if err != nil {
		return 0, nil, err
	}
	if !belongs(a) {
		return 0, nil, &statusError{status: http.StatusNotFound}
	}
	if d := preferredWait(c.r.Header); d > 0 && a.Status == fakecloud.InProgress {
		c.header.Set("Preference-Applied", "wait")
		ctx, cancel := context.WithCancel(c.r.Context())
		defer cancel()
		// The lab's clock is not ours to wait on: this is the patience of a real client.
		defer time.AfterFunc(d, cancel).Stop()
		if a, err = s.cloud.Wait(ctx, a.ID); err != nil {
			return 0, nil, err
		}
	}
	return 0, map[string]any{"action": action(a)}, nil
}

// preferredWait reads "Prefer: wait=SECONDS" (RFC 7240).
func preferredWait(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for _, p := range strings.Split(line, ",") {
			text, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "wait=")
			if n, err := strconv.Atoi(text); ok && err == nil && n > 0 {
				return min(time.Duration(n)*time.Second, time.Hour)
			}
		}
	}
	return 0
}
