package driver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// metadataTimeout bounds one question to the metadata service, which is on the same machine.
const metadataTimeout = 5 * time.Second

// droplet asks the machine's metadata service who and where it is.
func (n *node) droplet(ctx context.Context) (id DropletID, region string, err error) {
	s, err := n.metadata(ctx, "id")
	if err != nil {
		return 0, "", err
	}
	number, err := strconv.Atoi(s)
	if err != nil || number <= 0 {
		return 0, "", errorf(codes.Internal, "the droplet metadata service says %q where the droplet's id is expected", s)
	}
	if region, err = n.metadata(ctx, "region"); err != nil {
		return 0, "", err
	}
	if region == "" {
		return 0, "", errorf(codes.Internal, "the droplet metadata service does not say the region")
	}
	return DropletID(number), region, nil
}

func (n *node) metadata(ctx context.Context, leaf string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	url := strings.TrimSuffix(n.metadataURL, "/") + "/metadata/v1/" + leaf
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", errorf(codes.Internal, "ask the droplet metadata service: %w", err)
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := n.http.Do(req)
	if err != nil {
		return "", errorf(codes.Unavailable, "ask the droplet metadata service: %w; is this a droplet?", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	if err != nil {
		return "", errorf(codes.Unavailable, "ask the droplet metadata service for %s: %w", url, err)
	}
	return strings.TrimSpace(string(b)), nil
}
