package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/digitalocean/godo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/check"
)

// accountSettle is how long a leftover may be work in progress before it is one.
const accountSettle = 3 * time.Second

// Account lists what in the cloud no Kubernetes object justifies, with its price. It
// looks again for as long as settle: a volume that is just being deleted is no leak.
func (c *Cluster) Account(ctx context.Context, settle time.Duration) ([]check.Charge, error) {
	deadline := time.Now().Add(settle)
	for {
		charges, err := c.account(ctx)
		if err != nil || len(charges) == 0 || time.Now().After(deadline) {
			return charges, err
		}
		pause := time.NewTimer(200 * time.Millisecond) // API, cloud and kernel have no common event to wait for
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Cluster) account(ctx context.Context) ([]check.Charge, error) {
	if c.cloud == nil {
		return nil, nil
	}
	inv, err := c.objects(ctx)
	if err != nil {
		return nil, fmt.Errorf("account of cluster %s: %w", c.opts.Name, err)
	}
	h, err := c.holdings(ctx)
	if err != nil {
		return nil, fmt.Errorf("account of cluster %s: %w", c.opts.Name, err)
	}
	return check.Account(inv, h), nil
}

func (c *Cluster) holdings(ctx context.Context) (h check.Holdings, err error) {
	client, err := c.cloudClient()
	if err != nil {
		return h, err
	}
	err = eachPage(func(o *godo.ListOptions) (*godo.Response, error) {
		list, resp, err := client.Snapshots.ListVolume(ctx, o)
		for _, s := range list {
			h.Snapshots = append(h.Snapshots, check.CloudItem{ID: s.ID, Name: s.Name, Month: max(fakecloud.SnapshotMinimum, s.SizeGigaBytes*fakecloud.SnapshotGiBMonth)})
		}
		return resp, err
	})
	if err != nil {
		return h, err
	}
	err = eachPage(func(o *godo.ListOptions) (*godo.Response, error) {
		list, resp, err := client.Droplets.List(ctx, o)
		for _, d := range list {
			item := check.CloudItem{ID: strconv.Itoa(d.ID), Name: d.Name}
			if d.Size != nil {
				item.Month = d.Size.PriceMonthly
			}
			h.Droplets = append(h.Droplets, item)
		}
		return resp, err
	})
	if err != nil {
		return h, err
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return h, err
	}
	for _, n := range nodes.Items {
		h.Nodes = append(h.Nodes, n.Name)
	}
	h.Handles, err = c.snapshotHandles(ctx)
	return h, err
}

// snapshotHandles lists the cloud snapshots that VolumeSnapshotContents name.
func (c *Cluster) snapshotHandles(ctx context.Context) (out []string, err error) {
	b, err := c.client.Discovery().RESTClient().Get().AbsPath("/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil // this cluster serves no snapshots
	}
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Spec struct {
				Source struct {
					SnapshotHandle string `json:"snapshotHandle"`
				} `json:"source"`
			} `json:"spec"`
			Status struct {
				SnapshotHandle string `json:"snapshotHandle"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read volume snapshot contents: %w", err)
	}
	for _, i := range list.Items {
		out = append(out, i.Spec.Source.SnapshotHandle, i.Status.SnapshotHandle)
	}
	return out, nil
}

// cloudClient speaks to the cluster's cloud as its owner.
func (c *Cluster) cloudClient() (*godo.Client, error) {
	client := godo.NewFromToken(c.Token())
	return client, godo.SetBaseURL(c.URL() + "/")(client)
}

func (c *Cluster) serveAccount(w http.ResponseWriter, req *http.Request) {
	charges, err := c.Account(req.Context(), accountSettle)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if charges == nil {
		charges = []check.Charge{}
	}
	answer(w, charges)
}
