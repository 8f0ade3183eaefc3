package cluster

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"

	"drydock.dev/drydock/apiserverlite/server"
)

// authenticator knows the owner's token and one for each component, and asks the API
// server about those that it issued to service accounts. Components' tokens
// are made anew at each start and never written to disk.
type authenticator struct {
	owner string

	mu     sync.Mutex
	tokens map[string]string // guarded by mu: component -> token
	users  map[string]string // guarded by mu: token -> component
}

func newAuthenticator(owner string) *authenticator {
	return &authenticator{owner: owner, tokens: map[string]string{}, users: map[string]string{}}
}

// issue returns the component's token.
func (a *authenticator) issue(component string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.tokens[component]
	if !ok {
		t = randomToken()
		a.tokens[component], a.users[t] = t, component
	}
	return t
}

func bearer(r *http.Request) string {
	t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return strings.TrimSpace(t)
}

func (a *authenticator) isOwner(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(bearer(r)), []byte(a.owner)) == 1
}

// authenticate knows client certificates, tokens of the cluster's own and those of service accounts.
func (c *Cluster) authenticate(r *http.Request) (server.User, bool) {
	if u, ok := c.id.clients.user(r); ok {
		return u, true
	}
	if u, ok := c.auth.authenticate(r); ok {
		return u, true
	}
	t := bearer(r)
	if t == "" {
		return server.User{}, false
	}
	u, err := c.api.VerifyToken(t)
	return u, err == nil
}

func (a *authenticator) authenticate(r *http.Request) (server.User, bool) {
	if a.isOwner(r) {
		return server.User{Name: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"}}, true
	}
	a.mu.Lock()
	component, ok := a.users[bearer(r)]
	a.mu.Unlock()
	if !ok {
		return server.User{}, false
	}
	if node, ok := strings.CutPrefix(component, "kubelet/"); ok {
		return server.User{Name: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}, true
	}
	return server.User{Name: "system:" + component, Groups: []string{"system:masters", "system:authenticated"}}, true
}
