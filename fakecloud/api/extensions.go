package api

import (
	"net/http"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/blockdev"
)

// ours is the prefix of what the real API does not have.
const ours = "/v2/drydock"

func (s *server) extensions() []route {
	return []route{
		{"GET", ours + "/settings", ownAccess, s.getSettings},
		{"PATCH", ours + "/settings", ownAccess, s.adjustSettings},
		{"DELETE", ours + "/settings", ownAccess, s.resetSettings},
		{"GET", ours + "/state", ownAccess, s.dump},
		{"GET", ours + "/requests", ownAccess, s.listRequests},
		{"DELETE", ours + "/requests", ownAccess, s.clearRequests},
		{"GET", ours + "/faults", ownAccess, s.listFaults},
		{"POST", ours + "/faults", ownAccess, s.addFault},
		{"DELETE", ours + "/faults", ownAccess, s.clearFaults},
		{"DELETE", ours + "/faults/{fault}", ownAccess, s.removeFault},
		{"POST", ours + "/faults/{fault}/release", ownAccess, s.releaseFault},
		{"GET", ours + "/leftovers", ownAccess, s.leftovers},
		{"GET", ours + "/costs", ownAccess, s.costs},
		{"GET", ours + "/copies", ownAccess, s.listCopies},
		{"GET", ours + "/classes", ownAccess, s.listClasses},
		{"GET", ours + "/volumes/{id}", ownAccess, s.getExtendedVolume},
		{"PATCH", ours + "/volumes/{id}", ownAccess, s.patchVolume},
		{"POST", ours + "/volumes/{id}/clone", ownAccess, s.cloneVolume},
		{"POST", ours + "/volumes/{id}/actions", ownAccess, s.startExtendedAction},
		{"GET", ours + "/snapshots/{id}/changes", ownAccess, s.snapshotChanges},
	}
}

func (s *server) getSettings(*call) (int, any, error) {
	return 0, map[string]any{"settings": s.cloud.Settings()}, nil
}

func (s *server) adjustSettings(c *call) (int, any, error) {
	now, err := s.cloud.Adjust(c.r.Context(), c.body)
	return 0, map[string]any{"settings": now}, err
}

func (s *server) resetSettings(c *call) (int, any, error) {
	if err := s.cloud.ResetSettings(c.r.Context()); err != nil {
		return 0, nil, err
	}
	return s.getSettings(c)
}

func (s *server) listCopies(*call) (int, any, error) {
	return 0, map[string]any{"copies": each(s.cloud.Copies(), copyView)}, nil
}

func (s *server) listClasses(*call) (int, any, error) {
	return 0, map[string]any{"classes": fakecloud.Classes()}, nil
}

func (s *server) getExtendedVolume(c *call) (int, any, error) {
	v, err := s.cloud.Volume(fakecloud.VolumeID(c.param("id")))
	return 0, map[string]any{"volume": extendedVolume(v)}, err
}

// patchVolume changes what is ours about a volume. The answer says whether this
// machine holds an attached device to its performance.
func (s *server) patchVolume(c *call) (int, any, error) {
	var in struct {
		MultiAttach *bool                  `json:"multi_attach"`
		Performance *fakecloud.Performance `json:"performance"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	id := fakecloud.VolumeID(c.param("id"))
	v, err := s.cloud.Volume(id)
	if err == nil && in.MultiAttach != nil {
		v, err = s.cloud.Share(c.r.Context(), id, *in.MultiAttach)
	}
	answer := map[string]any{}
	if err == nil && in.Performance != nil {
		var limited blockdev.Limited
		v, limited, err = s.cloud.SetPerformance(c.r.Context(), id, *in.Performance)
		answer["enforced"], answer["why_not"] = limited.Applied, limited.Why
	}
	answer["volume"] = extendedVolume(v)
	return 0, answer, err
}

func (s *server) cloneVolume(c *call) (int, any, error) {
	var in struct {
		Name          string                `json:"name"`
		Region        string                `json:"region"`
		SizeGigabytes int64                 `json:"size_gigabytes"`
		Description   string                `json:"description"`
		Tags          []string              `json:"tags"`
		MultiAttach   bool                  `json:"multi_attach"`
		Performance   fakecloud.Performance `json:"performance"`
	}
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	source, err := s.cloud.Volume(fakecloud.VolumeID(c.param("id")))
	if err != nil {
		return 0, nil, err
	}
	if in.Region == "" {
		in.Region = source.Region
	}
	v, err := s.cloud.CreateVolume(c.r.Context(), fakecloud.NewVolume{
		Name: in.Name, Region: in.Region, SizeGiB: in.SizeGigabytes, Description: in.Description, Tags: in.Tags,
		Clone: source.ID, Shared: in.MultiAttach, Performance: in.Performance,
	})
	return http.StatusCreated, map[string]any{"volume": extendedVolume(v)}, err
}

// startExtendedAction is the real API's, and takes read_only.
func (s *server) startExtendedAction(c *call) (int, any, error) {
	var in actionRequest
	if err := c.decode(&in); err != nil {
		return 0, nil, err
	}
	return s.start(c, fakecloud.VolumeID(c.param("id")), in, fakecloud.Request{ReadOnly: in.ReadOnly})
}

// snapshotChanges lists where a snapshot differs from the one that base names.
func (s *server) snapshotChanges(c *call) (int, any, error) {
	id, base := fakecloud.SnapshotID(c.param("id")), fakecloud.SnapshotID(c.r.URL.Query().Get("base"))
	list, err := s.cloud.Changes(c.r.Context(), id, base)
	if err != nil {
		return 0, nil, err
	}
	var total int64
	extents := each(list, func(e blockdev.Extent) map[string]int64 {
		total += e.Length
		return map[string]int64{"offset": e.Start, "length": e.Length}
	})
	return 0, map[string]any{"changes": extents, "total_bytes": total}, nil
}
