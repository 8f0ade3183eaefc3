package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/scenario"
)

// world lets a story act on a cluster.
type world struct {
	*Cluster
	t testing.TB
}

func (w world) Lab() *lab.Lab                { return w.Cluster.Lab }
func (w world) KubeletDir(n string) string   { return w.Layout.Kubelet(n) }
func (w world) Kill(component string) error  { return w.parts.kill(component) }
func (w world) Start(component string) error { return w.parts.start(component) }

// Unplug detaches as somebody does with the cloud's own tools.
func (w world) Unplug(ctx context.Context, node, volume string) error {
	ask := func(method, path string, body, into any) error {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, method, w.URL()+path, bytes.NewReader(b))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+w.Token())
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		b, err = io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			return fmt.Errorf("%s %s: %s %s %w", method, path, resp.Status, b, err)
		}
		return json.Unmarshal(b, into)
	}
	var list struct {
		Droplets []struct{ ID int }
	}
	if err := ask(http.MethodGet, "/v2/droplets?name="+node, nil, &list); err != nil {
		return err
	}
	if len(list.Droplets) != 1 {
		return fmt.Errorf("%d droplets are called %s", len(list.Droplets), node)
	}
	var answer struct {
		Action struct {
			ID     int
			Status string
		}
	}
	err := ask(http.MethodPost, "/v2/volumes/actions", map[string]any{"type": "detach", "volume_name": volume, "droplet_id": list.Droplets[0].ID, "region": Region}, &answer)
	for err == nil && answer.Action.Status == "in-progress" {
		err = ask(http.MethodGet, fmt.Sprintf("/v2/actions/%d", answer.Action.ID), nil, &answer)
	}
	if err == nil && answer.Action.Status != "completed" {
		err = errors.New("the cloud's action is " + answer.Action.Status)
	}
	return err
}

// moveKubelets makes a state directory in which each node's kubelet directory is a link to another place.
func moveKubelets(t testing.TB, o Options) {
	t.Helper()
	c := begin(t, o)
	nodes := c.NodeNames()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		elsewhere := filepath.Join(c.Layout.Node(n), "elsewhere")
		if err := errors.Join(os.Rename(c.Layout.Kubelet(n), elsewhere), os.Symlink(elsewhere, c.Layout.Kubelet(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScenarios plays each story in each mode, in a cluster of its own.
func TestScenarios(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			scenario.Run(t, scenario.Params{
				Dir: "../scenario/testdata",
				Begin: func(t testing.TB, special []string) (scenario.World, func()) {
					o := Options{Devices: mode, State: filepath.Join(shortDir(t), "s"), Gates: Gates{CSIVolumeHealth: slices.Contains(special, "volume-health")}}
					if slices.Contains(special, "kubelet-behind-a-link") {
						moveKubelets(t, o)
					}
					c := begin(t, o)
					return world{c, t}, func() { c.Close() }
				},
				Patience: time.Minute,
				Env:      []string{"DEVICES=" + string(mode)},
			})
		})
	}
}
