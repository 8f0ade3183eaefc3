package driver

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// place is where an entry stands in a list: by time of creation, then by id. A token
// of a paged list is the place of the last entry that was given out, so that entries
// which come and go meanwhile shift nothing.
type place struct {
	created int64 // nanoseconds since 1970
	id      string
}

func placeOf(created time.Time, id string) place {
	if created.IsZero() {
		return place{0, id}
	}
	return place{created.UnixNano(), id}
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.created, o.created), cmp.Compare(p.id, o.id))
}

func (p place) token() string { return strconv.FormatInt(p.created, 36) + "." + p.id }

func parsePlace(token string) (place, error) {
	at, id, ok := strings.Cut(token, ".")
	n, err := strconv.ParseInt(at, 36, 64)
	if !ok || err != nil || !known(id) {
		return place{}, errorf(codes.Aborted, "starting token %q is not one of this driver's; start again without a token", token)
	}
	return place{n, id}, nil
}

// page cuts the part of a list that a request asks for.
func page[T any](all []T, at func(T) place, token string, most int32) (part []T, next string, err error) {
	if most < 0 {
		return nil, "", errorf(codes.InvalidArgument, "max_entries %d: it cannot be negative", most)
	}
	slices.SortFunc(all, func(a, b T) int { return at(a).compare(at(b)) })
	if token != "" {
		from, err := parsePlace(token)
		if err != nil {
			return nil, "", err
		}
		i, found := slices.BinarySearchFunc(all, from, func(v T, p place) int { return at(v).compare(p) })
		if found {
			i++
		}
		all = all[i:]
	}
	if most > 0 && int(most) < len(all) {
		all = all[:most]
		next = at(all[most-1]).token()
	}
	return all, next, nil
}

func (c *controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := pages(func(o *godo.ListOptions) ([]godo.Volume, *godo.Response, error) {
		return c.cloud.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Region: c.cloud.region, ListOptions: o})
	})
	if err != nil {
		return nil, cloudError(err, "list volumes of region %s", c.cloud.region)
	}
	part, next, err := page(all, func(v godo.Volume) place { return placeOf(v.CreatedAt, v.ID) }, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for i := range part {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.describe(&part[i]), Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodesOf(&part[i])}})
	}
	return resp, nil
}

func nodesOf(v *godo.Volume) (ids []string) {
	for _, d := range v.DropletIDs {
		ids = append(ids, strconv.Itoa(d))
	}
	return ids
}

func (c *controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	}
	v, err := c.cloud.volume(ctx, VolumeID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{Volume: c.describe(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodesOf(v)}}, nil
}

// GetCapacity reports how much more could be made: the cloud limits the number of
// volumes, so it is that number times the greatest size.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	none := &csi.GetCapacityResponse{}
	for _, want := range req.GetVolumeCapabilities() {
		if unsupported(want) != nil {
			return none, nil
		}
	}
	if t := req.GetAccessibleTopology(); t != nil && !c.here(t) {
		return none, nil
	}
	account, _, err := c.cloud.Account.Get(ctx)
	if err != nil {
		return nil, cloudError(err, "get the account's limits")
	}
	left := int64(math.MaxInt64 / gib / maxGiB)
	if account.VolumeLimit > 0 {
		all, err := pages(func(o *godo.ListOptions) ([]godo.Volume, *godo.Response, error) {
			return c.cloud.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: o})
		})
		if err != nil {
			return nil, cloudError(err, "count the account's volumes")
		}
		left = min(left, max(0, int64(account.VolumeLimit-len(all))))
	}
	resp := &csi.GetCapacityResponse{AvailableCapacity: left * maxGiB * gib, MinimumVolumeSize: wrapperspb.Int64(minGiB * gib)}
	if left > 0 {
		resp.MaximumVolumeSize = wrapperspb.Int64(maxGiB * gib)
	}
	return resp, nil
}
