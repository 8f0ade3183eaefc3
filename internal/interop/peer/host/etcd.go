package host

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdWord as the first argument makes this program an etcd.
const etcdWord = "etcd"

type etcdOptions struct {
	program string // empty for the one linked in
	dir     string
	fsync   bool
}

// etcd is a running one.
type etcd struct {
	url     string
	version string
	pid     int
	ended   chan error
	stop    func() // and waits
}

// runEtcd is the linked-in etcd: it says its URL in a line, and ends with ctx.
func runEtcd(ctx context.Context, dir string, fsync bool) error {
	c := embed.NewConfig()
	c.Dir, c.UnsafeNoFsync = dir, !fsync
	c.LogLevel, c.LogOutputs = "error", []string{"stderr"}
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{any}, []url.URL{any}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{any}, []url.URL{any}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("http://" + e.Clients[0].Addr().String())
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// startEtcd returns once etcd answers. It is ended by stop only, so that the API server can end before it.
func startEtcd(ctx context.Context, o etcdOptions) (*etcd, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	data := filepath.Join(o.dir, "data")
	e := &etcd{ended: make(chan error, 1)}
	var cmd *exec.Cmd
	if o.program == "" {
		cmd = exec.Command(os.Args[0], etcdWord, data, fmt.Sprintf("fsync=%v", o.fsync))
	} else {
		client, peer, err := freePorts()
		if err != nil {
			return nil, err
		}
		e.url = client
		cmd = exec.Command(o.program, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error")
		if !o.fsync {
			cmd.Args = append(cmd.Args, "--unsafe-no-fsync")
		}
	}
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe() // closed when this process ends, however it does
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	e.pid = cmd.Process.Pid
	if o.program == "" {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			cmd.Process.Kill()
			return nil, fmt.Errorf("start etcd: %w", cmd.Wait())
		}
		e.url = strings.TrimSpace(line)
	}
	gone := make(chan struct{})
	go func() {
		err := cmd.Wait()
		e.ended <- err
		close(gone)
	}()
	e.stop = func() {
		hold.Close()
		cmd.Process.Signal(syscall.SIGTERM)
		<-gone
	}
	if e.version, err = etcdVersion(ctx, e.url, gone); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// etcdVersion waits for etcd to answer.
func etcdVersion(ctx context.Context, url string, gone <-chan struct{}) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/version", nil)
		if err != nil {
			return "", err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			defer resp.Body.Close()
			var v struct {
				Server string `json:"etcdserver"`
			}
			return v.Server, json.NewDecoder(resp.Body).Decode(&v)
		}
		select {
		case <-gone:
			return "", fmt.Errorf("etcd ended before it answered")
		case <-ctx.Done():
			return "", fmt.Errorf("etcd does not answer: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freePorts are two that were free a moment ago.
func freePorts() (one, two string, err error) {
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", err
		}
		defer l.Close()
		ports[i] = "http://" + l.Addr().String()
	}
	return ports[0], ports[1], nil
}
