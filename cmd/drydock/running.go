package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/cluster"
)

var errNotRunning = errors.New("does not run")

// running is a cluster of another process, as its state directory describes it.
type running struct {
	layout cluster.Layout
	pid    int
	rest   *rest.Config
}

// find returns the cluster that the flags name, or an error of kind errNotRunning.
func (f *flags) find() (*running, error) {
	l, err := f.layout()
	if err != nil {
		return nil, err
	}
	pid, err := cluster.Owner(l)
	if err != nil {
		return nil, err
	}
	if pid == 0 {
		return nil, fmt.Errorf("cluster %q (%s) %w; start it with \"drydock up%s\"", f.name, l.Root, errNotRunning, f.suffix())
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("cluster %q is just starting or its kubeconfig is damaged: %w", f.name, err)
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = -1, -1, "drydock-cli"
	return &running{layout: l, pid: pid, rest: cfg}, nil
}

// url is the cluster's plain HTTP address.
func (r *running) url() string { return "http://" + strings.TrimPrefix(r.rest.Host, "https://") }

// control asks the running process something and decodes its JSON answer.
func (r *running) control(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url()+"/drydock/v1"+path, nil)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(r.layout.Token())
	if err != nil {
		return fmt.Errorf("read the cluster's token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask cluster in process %d: %w", r.pid, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("ask cluster in process %d: %s: %s", r.pid, resp.Status, strings.TrimSpace(string(b)))
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
