package nodesim

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

func asUUID(s string) string {
	h := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// systemID is the node's machine id.
func systemID(node string) string { return asUUID("drydock machine " + node) }

// bootID names this boot of the node. A node boots when the drydock process starts, and
// when it is powered on again;
// its kubelet may be restarted many times in one boot.
func bootID(boots string) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return asUUID(fmt.Sprintf("drydock boot %s %d %s %s", boot, os.Getpid(), processStart(), boots))
}

// processStart tells two processes with one id apart.
func processStart() string {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(rest); len(f) > 19 {
		return f[19]
	}
	return ""
}

func kernelVersion() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// addresses gives pods addresses that nothing answers at: 10.<node>.x.y.
type addresses struct {
	net byte

	mu   sync.Mutex
	next uint16               // guarded by mu
	of   map[types.UID]string // guarded by mu
	used map[string]types.UID // guarded by mu
}

func newAddresses(node string) *addresses {
	h := fnv.New32a()
	h.Write([]byte(node))
	return &addresses{net: byte(h.Sum32()%254) + 1, next: 2, of: map[types.UID]string{}, used: map[string]types.UID{}}
}

func (a *addresses) node() string { return fmt.Sprintf("10.%d.0.1", a.net) }

// pod returns a pod's address; want is kept if it is free.
func (a *addresses) pod(uid types.UID, want string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ip := a.of[uid]; ip != "" {
		return ip
	}
	ip := want
	for ip == "" || a.used[ip] != "" {
		ip = fmt.Sprintf("10.%d.%d.%d", a.net, a.next>>8, a.next&0xff)
		a.next++
	}
	a.of[uid], a.used[ip] = ip, uid
	return ip
}

func (a *addresses) free(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, a.of[uid])
	delete(a.of, uid)
}
