package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

const (
	victimDir  = "DRYDOCK_TEST_VICTIM"
	victimKind = "DRYDOCK_TEST_KIND"
)

// serveVictim is the other process of TestModel: a cloud behind a port, until it is killed.
func serveVictim(t *testing.T, dir, kind string) {
	l := lab.New(lab.Options{})
	o := blockdev.Options{Lab: l, Links: func(d string) string { return filepath.Join(dir, "nodes", d) }}
	var devices blockdev.Backend
	var err error
	if kind == "loop" {
		devices, err = blockdev.NewLoop(filepath.Join(dir, "cloud"), o)
	} else {
		devices, err = blockdev.NewSim(filepath.Join(dir, "cloud"), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	soon := fakecloud.Delay{Shape: fakecloud.Exponential, Mean: time.Millisecond, Max: 5 * time.Millisecond}
	cloud, err := fakecloud.Open(context.Background(), fakecloud.Config{DB: filepath.Join(dir, "cloud.db"), Devices: devices, Lab: l, Log: zerolog.Nop(),
		Latency: fakecloud.Latency{Attach: soon, Detach: soon, Resize: soon, Power: soon, Release: soon}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range modelDroplets {
		if _, err := cloud.EnsureDroplet(context.Background(), n); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening", ln.Addr())
	t.Fatal(http.Serve(ln, api.New(cloud, api.Config{Token: token})))
}

var modelDroplets = []string{"n1", "n2"}

// start brings the cloud's process up and gives every client its address.
func (m *apiModel) start() {
	m.process = exec.Command("/proc/self/exe", "-test.run=^TestModel$")
	m.process.Env = append(os.Environ(), victimDir+"="+m.dir, victimKind+"="+m.kind)
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := m.process.StdoutPipe()
	m.must(err)
	m.must(m.process.Start())
	lines := bufio.NewScanner(out)
	addr := ""
	var said []string
	for addr == "" && lines.Scan() {
		addr, _ = strings.CutPrefix(lines.Text(), "listening ")
		if addr == lines.Text() {
			addr = ""
		}
		said = append(said, lines.Text())
	}
	if addr == "" {
		m.Fatalf("the cloud did not start: %v", said)
	}
	m.clients = nil
	for range 3 {
		tr := &http.Transport{}
		c, err := godo.New(&http.Client{Transport: tr}, godo.SetBaseURL("http://"+addr+"/"),
			godo.SetRequestHeaders(map[string]string{"Authorization": "Bearer " + token, "Prefer": "wait=30"}))
		m.must(err)
		m.clients, m.transport = append(m.clients, c), append(m.transport, tr)
	}
	m.look()
}

// look learns the droplets' ids.
func (m *apiModel) look() {
	list, _, err := m.clients[0].Droplets.List(context.Background(), nil)
	m.must(err)
	m.droplets = map[string]int{}
	for _, d := range list {
		m.droplets[d.Name] = d.ID
	}
}

// restart ends the process as kill -9 does, and starts another one.
func (m *apiModel) restart() {
	m.end()
	m.start()
}

func (m *apiModel) end() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
	for _, t := range m.transport {
		t.CloseIdleConnections()
	}
	m.transport = nil
}

func (m *apiModel) client() *godo.Client {
	return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(m.T, "client")]
}

// maybeKilled runs a call; sometimes the process is killed at some instant of it.
// Answered tells whether the call heard of its end, whatever that was.
func (m *apiModel) maybeKilled(call func() error) (answered bool, err error) {
	if rapid.IntRange(0, 3).Draw(m.T, "kill") > 0 {
		err = call()
		m.settle()
		return true, err
	}
	after := time.Duration(rapid.IntRange(0, 6000).Draw(m.T, "after µs")) * time.Microsecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = call()
	}()
	time.Sleep(after) // any instant is as good as another
	_ = m.process.Process.Kill()
	<-done
	m.restart()
	m.settle()
	var refused *godo.ErrorResponse
	return err == nil || errors.As(err, &refused), err
}

// settle waits until no action is in progress.
func (m *apiModel) settle() {
	c := m.clients[0]
	list, _, err := c.Actions.List(context.Background(), &godo.ListOptions{PerPage: 200})
	m.must(err)
	for _, a := range list {
		if a.Status == godo.ActionInProgress {
			end, _, err := c.Actions.Get(context.Background(), a.ID)
			m.must(err)
			a = *end
		}
		if a.Status != godo.ActionCompleted {
			m.Fatalf("action %+v", a)
		}
	}
}
