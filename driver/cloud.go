package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
)

// VolumeID is the cloud's id of a volume, and the CSI volume handle.
type VolumeID string

// SnapshotID is the cloud's id of a snapshot.
type SnapshotID string

// DropletID is the cloud's id of a machine; in decimal it is the CSI node id.
type DropletID int

// cloud is the driver's account in one region.
type cloud struct {
	*godo.Client
	region    string
	transport http.RoundTripper
	ops       ops
}

// userAgent tells the cloud who asks.
const userAgent = "drydock-driver"

func newCloud(c ControllerConfig, o ops) (*cloud, error) {
	if c.Region == "" {
		return nil, errors.New("start driver: the controller side needs a region")
	}
	t := c.Transport
	if t == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost = 32
		t = own
	}
	options := []godo.ClientOpt{godo.SetUserAgent(userAgent)}
	if c.CloudURL != "" {
		base := strings.TrimSuffix(c.CloudURL, "/") + "/"
		if u, err := url.Parse(base); err != nil || u.Host == "" {
			return nil, fmt.Errorf("start driver: cloud URL %q: give one like https://api.digitalocean.com", c.CloudURL)
		}
		options = append(options, godo.SetBaseURL(base))
	}
	client, err := godo.New(&http.Client{Transport: &retrying{next: t, token: c.Token, ops: o}}, options...)
	if err != nil {
		return nil, fmt.Errorf("start driver: %w", err)
	}
	return &cloud{Client: client, region: c.Region, transport: t, ops: o}, nil
}

func (c *cloud) close() {
	if t, ok := c.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// resourceID is the form of an id that can stand in a URL. The cloud has no others.
var resourceID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// known tells whether id can be one of the cloud's. One that cannot names nothing that exists.
func known[T ~string](id T) bool { return resourceID.MatchString(string(id)) }

// volume returns a volume; a NotFound error if there is none.
func (c *cloud) volume(ctx context.Context, id VolumeID) (*godo.Volume, error) {
	if !known(id) {
		return nil, errorf(codes.NotFound, "volume %q does not exist: that is not an id of this cloud", id)
	}
	v, _, err := c.Storage.GetVolume(ctx, string(id))
	if err != nil {
		return nil, cloudError(err, "get volume %s", id)
	}
	return v, nil
}

// volumeNamed returns the volume of that cloud name in the region, nil if there is none.
func (c *cloud) volumeNamed(ctx context.Context, name string) (*godo.Volume, error) {
	// godo puts both into the URL as they are.
	list, _, err := c.Storage.ListVolumes(ctx, &godo.ListVolumeParams{Name: url.QueryEscape(name), Region: url.QueryEscape(c.region)})
	if err != nil {
		return nil, cloudError(err, "look for volume %s", name)
	}
	if len(list) > 1 {
		return nil, errorf(codes.Internal, "the cloud has %d volumes called %s in region %s; remove all but one by hand", len(list), name, c.region)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return &list[0], nil
}

// droplet checks that a machine exists.
func (c *cloud) droplet(ctx context.Context, id DropletID) error {
	if _, _, err := c.Droplets.Get(ctx, int(id)); err != nil {
		return cloudError(err, "get droplet %d", id)
	}
	return nil
}

// pages walks over every page of a list.
func pages[T any](list func(*godo.ListOptions) ([]T, *godo.Response, error)) ([]T, error) {
	var all []T
	for page := 1; ; page++ {
		some, resp, err := list(&godo.ListOptions{Page: page, PerPage: 200})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if len(some) == 0 || resp.Links == nil || resp.Links.IsLastPage() {
			return all, nil
		}
	}
}

// actionAfter asks for an action, and asks the cloud to hold its answer until the
// action is done. A cloud that cannot do that answers at once.
func (c *cloud) actionAfter(ctx context.Context, id VolumeID, action int) (*godo.Action, error) {
	req, err := c.NewRequest(ctx, http.MethodGet, fmt.Sprintf("v2/volumes/%s/actions/%d", id, action), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Prefer", "wait=10")
	var root struct {
		Action *godo.Action `json:"action"`
	}
	if _, err := c.Do(ctx, req, &root); err != nil {
		return nil, err
	}
	if root.Action == nil {
		return nil, errors.New("the cloud's answer has no action in it")
	}
	return root.Action, nil
}

// Polling of an action starts at once, for a cloud that holds its answer or is next door, and slows down.
const (
	firstPoll = time.Millisecond
	longPoll  = time.Second
)

// finish waits until an action of a volume is done. Its error says whether it was
// not done (Internal) or whether that is unknown (DeadlineExceeded, Unavailable).
func (c *cloud) finish(ctx context.Context, id VolumeID, a *godo.Action) error {
	for pause := time.Duration(0); ; pause = min(max(2*pause, firstPoll), longPoll) {
		switch a.Status {
		case godo.ActionCompleted:
			return nil
		case "errored":
			return errorf(codes.Internal, "the cloud could not do action %d (%s) of volume %s: it ended as errored; it is safe to ask again", a.ID, a.Type, id)
		}
		t := c.ops.lab.Clock.NewTimer(pause)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
			return errorf(codeOf(context.Cause(ctx)), "action %d (%s) of volume %s is still %s: %w; ask again to go on waiting", a.ID, a.Type, id, a.Status, context.Cause(ctx))
		}
		got, err := c.actionAfter(ctx, id, a.ID)
		switch {
		case err == nil:
			a = got
		case statusOf(err) == http.StatusNotFound:
			return errorf(codes.Unavailable, "the cloud no longer knows action %d (%s) of volume %s: %w; ask again", a.ID, a.Type, id, err)
		case statusOf(err) == http.StatusUnauthorized || statusOf(err) == http.StatusForbidden:
			return errorf(codes.Unavailable, "watch action %d (%s) of volume %s: %w", a.ID, a.Type, id, err)
		default:
			c.ops.log.Debug().Err(err).Int("action", a.ID).Msg("watching an action; asking again")
		}
	}
}

// pending returns an action of the volume that is in progress, nil if there is none.
func (c *cloud) pending(ctx context.Context, id VolumeID) (*godo.Action, error) {
	list, _, err := c.StorageActions.List(ctx, string(id), &godo.ListOptions{Page: 1, PerPage: 10})
	if err != nil {
		return nil, cloudError(err, "list actions of volume %s", id)
	}
	for i := range list {
		if list[i].Status == godo.ActionInProgress {
			return &list[i], nil
		}
	}
	return nil, nil
}

// statusOf is the HTTP status that the cloud answered, zero if it did not.
func statusOf(err error) int {
	var r *godo.ErrorResponse
	if errors.As(err, &r) && r.Response != nil {
		return r.Response.StatusCode
	}
	return 0
}

// says tells whether the cloud's own message holds a text. godo's error text is no
// place to look, for it holds the URL, and that what the user called things.
func says(err error, text string) bool {
	var r *godo.ErrorResponse
	return errors.As(err, &r) && strings.Contains(strings.ToLower(r.Message), strings.ToLower(text))
}

// cloudError gives a failed request its code where nothing more special is known.
func cloudError(err error, format string, args ...any) error {
	code := codes.Unavailable // the network, 429 and 5xx: what became of it is unknown, ask again
	switch s := statusOf(err); {
	case s == http.StatusNotFound:
		code = codes.NotFound
	case s == http.StatusUnauthorized:
		code = codes.Unauthenticated
	case s == http.StatusForbidden:
		code = codes.PermissionDenied
	case s == http.StatusConflict:
		code = codes.FailedPrecondition
	case s == http.StatusBadRequest || s == http.StatusUnprocessableEntity:
		code = codes.InvalidArgument
	case s == 0 && errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case s == 0 && errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return errorf(code, "%s: %w", fmt.Sprintf(format, args...), err)
}
