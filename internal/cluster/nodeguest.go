package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"drydock.dev/drydock/internal/host"
)

// Guest is what somebody needs to know who runs a program on a node.
type Guest struct {
	Node    string `json:"node"`
	Devices string `json:"devices"` // loop or sim
	// Process is the one whose mount namespace has the node's mounts; zero where they are simulated.
	Process int      `json:"process"`
	Kubelet string   `json:"kubelet"`
	Links   string   `json:"links"`
	Scratch string   `json:"scratch"`
	Env     []string `json:"env"`
	// Over, in a later message, says why the guest has to go.
	Over string `json:"over,omitempty"`
}

// stay is one program of somebody else's on a node.
type stay struct {
	what string
	over chan string // the reason why it has to go; has room for one
}

// guestGrace is how long a guest may take to go before its node goes on without waiting.
const guestGrace = 3 * time.Second

// guest describes the node to a program that is to run there.
func (m *machine) guest() Guest {
	c, l := m.c, m.c.Layout
	g := Guest{Node: m.name, Devices: string(c.Mode), Kubelet: l.Kubelet(m.name), Links: l.Links(m.name), Scratch: l.NodeScratch(m.name)}
	byID, kubelet := g.Links, g.Kubelet
	if c.Mode == host.Loop {
		g.Process = c.pid()
		byID = "/dev/disk/by-id"
	}
	via := (&url.URL{Scheme: "http", Host: c.Addr, User: url.User(m.name)}).String()
	local := "127.0.0.1,localhost,::1"
	g.Env = []string{
		"DRYDOCK_NODE=" + m.name, "NODE_NAME=" + m.name, "KUBE_NODE_NAME=" + m.name,
		"DRYDOCK_KUBELET_DIR=" + kubelet, "DRYDOCK_DEVICE_DIR=" + byID, "KUBECONFIG=" + l.Kubeconfig(),
		// The metadata service of a droplet is plain HTTP at a link-local address, and knows who asks by the proxy's user.
		"HTTP_PROXY=" + via, "http_proxy=" + via, "NO_PROXY=" + local, "no_proxy=" + local,
	}
	return g
}

// receive lets a program stay on the node for as long as its request lasts. The answer is
// a line that describes the node at once, and another when the program has to go.
func (m *machine) receive(w http.ResponseWriter, r *http.Request) {
	s := &stay{what: r.URL.Query().Get("what"), over: make(chan string, 1)}
	m.mu.Lock()
	if m.off {
		m.mu.Unlock()
		http.Error(w, "node "+m.name+" is powered off; \"drydock node power-on "+m.name+"\" boots it", http.StatusConflict)
		return
	}
	m.guests[s] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.guests, s)
		close(m.left)
		m.left = make(chan struct{})
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	say := func(g Guest) {
		json.NewEncoder(w).Encode(g)
		http.NewResponseController(w).Flush()
	}
	say(m.guest())
	select {
	case <-r.Context().Done():
	case why := <-s.over:
		say(Guest{Node: m.name, Over: why})
		<-r.Context().Done() // it goes when its program has ended
	}
}

// expel ends every program of others on the node, and waits for a while until they have gone.
func (m *machine) expel(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(ctx, guestGrace)
	defer cancel()
	m.mu.Lock()
	for g := range m.guests {
		select {
		case g.over <- why:
		default:
		}
	}
	for len(m.guests) > 0 {
		left := m.left
		m.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
	}
	m.mu.Unlock()
}

// expelGuests ends every program of others on every node.
func (c *Cluster) expelGuests() {
	var wg sync.WaitGroup
	for _, m := range c.machines {
		wg.Go(func() {
			m.mu.Lock()
			m.off = true
			m.mu.Unlock()
			m.expel(context.Background(), "the cluster stops")
		})
	}
	wg.Wait()
}

func (c *Cluster) pid() int { return os.Getpid() }
