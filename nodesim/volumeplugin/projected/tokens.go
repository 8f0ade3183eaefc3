package projected

import (
	"context"
	"fmt"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

const defaultSeconds = 3600

// tokens keeps pods' tokens until four fifths of their time are over.
type tokens struct {
	host *volumeplugin.Host
	mu   sync.Mutex
	have map[tokenKey]held // guarded by mu
}

type tokenKey struct {
	uid      types.UID
	audience string
	seconds  int64
}

type held struct {
	token   string
	renewAt time.Time
}

func newTokens(h *volumeplugin.Host) *tokens { return &tokens{host: h, have: map[tokenKey]held{}} }

func (t *tokens) get(ctx context.Context, pod *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error) {
	seconds := int64(defaultSeconds)
	if s.ExpirationSeconds != nil {
		seconds = *s.ExpirationSeconds
	}
	k := tokenKey{pod.UID, s.Audience, seconds}
	now := t.host.Lab.Clock.Now()
	t.mu.Lock()
	h, ok := t.have[k]
	t.mu.Unlock()
	if ok && now.Before(h.renewAt) {
		return h.token, nil
	}
	var audiences []string
	if s.Audience != "" {
		audiences = []string{s.Audience}
	}
	r, err := t.host.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authv1.TokenRequest{
		Spec: authv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds,
			BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for old, h := range t.have { // forget what is over, so that gone pods do not add up
		if now.After(h.renewAt) {
			delete(t.have, old)
		}
	}
	t.have[k] = held{r.Status.Token, now.Add(time.Duration(seconds) * time.Second * 4 / 5)}
	return r.Status.Token, nil
}
