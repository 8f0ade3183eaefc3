package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/storage"
)

// Issuer of service account tokens, and their audience when none is asked for.
const Issuer = "https://kubernetes.default.svc"

// tokens signs and verifies service account tokens: JWTs with ES256, whose key the store
// keeps. Their times are real time, because others verify them too.
type tokens struct {
	key   *ecdsa.PrivateKey
	keyID string
	clock clock.PassiveClock
}

const metaSigningKey = "serviceaccount-key"

func newTokens(s *storage.Store, c clock.PassiveClock) (*tokens, error) {
	der, ok := s.Meta(metaSigningKey)
	if !ok {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make the service account key: %w", err)
		}
		if der, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return nil, fmt.Errorf("make the service account key: %w", err)
		}
		if err := s.SetMeta(context.Background(), metaSigningKey, der); err != nil {
			return nil, err
		}
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("read the service account key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("read the service account key: it is a %T", parsed)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("read the service account key: %w", err)
	}
	sum := sha256.Sum256(pub)
	return &tokens{key: key, keyID: b64(sum[:]), clock: c}, nil
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

type tokenHeader struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
}

type tokenRef struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

type tokenBinding struct {
	Namespace      string    `json:"namespace"`
	ServiceAccount tokenRef  `json:"serviceaccount"`
	Pod            *tokenRef `json:"pod,omitempty"`
	Node           *tokenRef `json:"node,omitempty"`
	Secret         *tokenRef `json:"secret,omitempty"`
	WarnAfter      int64     `json:"warnafter,omitempty"`
}

type tokenClaims struct {
	Audience   []string     `json:"aud"`
	Expiry     int64        `json:"exp"`
	IssuedAt   int64        `json:"iat"`
	Issuer     string       `json:"iss"`
	ID         string       `json:"jti"`
	Kubernetes tokenBinding `json:"kubernetes.io"`
	NotBefore  int64        `json:"nbf"`
	Subject    string       `json:"sub"`
}

func (t *tokens) sign(c tokenClaims) (string, error) {
	head, err := json.Marshal(tokenHeader{"ES256", t.keyID})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	text := b64(head) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, t.key, sum[:])
	if err != nil {
		return "", err
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return text + "." + b64(sig), nil
}

// verify checks signature, issuer and times.
func (t *tokens) verify(token string) (tokenClaims, error) {
	var c tokenClaims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("invalid bearer token")
	}
	var head tokenHeader
	if b, err := base64.RawURLEncoding.DecodeString(parts[0]); err != nil || json.Unmarshal(b, &head) != nil || head.Alg != "ES256" {
		return c, errors.New("token has an unknown header")
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(sig) != 64 {
		return c, errors.New("token has no signature")
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if !ecdsa.Verify(&t.key.PublicKey, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return c, errors.New("token signature does not verify")
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, errors.New("token has no claims")
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, errors.New("token has no claims")
	}
	now := t.clock.Now()
	switch {
	case c.Issuer != Issuer:
		return c, errors.New("token has another issuer")
	case now.Unix() >= c.Expiry:
		return c, errors.New("token has expired")
	case now.Add(time.Minute).Unix() < c.NotBefore:
		return c, errors.New("token is not valid yet")
	}
	return c, nil
}

// VerifyToken tells whose service account token this is. It holds for one of the audiences (the
// API's own when there are none) and as long as the account, and what the token is bound to, exist.
func (s *Server) VerifyToken(token string, audiences ...string) (User, error) {
	c, err := s.tokens.verify(token)
	if err != nil {
		return User{}, err
	}
	if len(audiences) == 0 {
		audiences = []string{Issuer}
	}
	if !slices.ContainsFunc(c.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return User{}, errors.New("token is for another audience")
	}
	k := c.Kubernetes
	if err := s.alive(schema.GroupResource{Resource: "serviceaccounts"}, k.Namespace, k.ServiceAccount); err != nil {
		return User{}, err
	}
	u := User{Name: "system:serviceaccount:" + k.Namespace + ":" + k.ServiceAccount.Name, UID: string(k.ServiceAccount.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + k.Namespace, "system:authenticated"},
		Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=" + c.ID}}}
	for _, b := range []struct {
		ref      *tokenRef
		resource string
		ns       string
		extra    string
	}{{k.Pod, "pods", k.Namespace, "pod"}, {k.Secret, "secrets", k.Namespace, ""}, {k.Node, "nodes", "", "node"}} {
		if b.ref == nil {
			continue
		}
		if b.resource != "nodes" || k.Pod == nil { // a pod's token names its node, but lives by the pod
			if err := s.alive(schema.GroupResource{Resource: b.resource}, b.ns, *b.ref); err != nil {
				return User{}, err
			}
		}
		if b.extra != "" {
			u.Extra["authentication.kubernetes.io/"+b.extra+"-name"] = []string{b.ref.Name}
			u.Extra["authentication.kubernetes.io/"+b.extra+"-uid"] = []string{string(b.ref.UID)}
		}
	}
	return u, nil
}

func (s *Server) alive(gr schema.GroupResource, namespace string, ref tokenRef) error {
	e, ok := s.store.Get(storage.Key{Resource: gr, Namespace: namespace, Name: ref.Name})
	if ok {
		if m, err := metaOf(e.Object); err == nil && m.GetUID() == ref.UID {
			return nil
		}
	}
	return fmt.Errorf("token is bound to %s %s, which is gone", gr.Resource, ref.Name)
}

const (
	tokenDefault = 3600
	tokenLeast   = 600
	tokenMost    = 1 << 32
)

// issueToken serves POST serviceaccounts/x/token.
func (x *exchange) issueToken(context.Context) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	gvk := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	req, err := decodeInto(x, o.validation, &authenticationv1.TokenRequest{}, gvk)
	if err != nil {
		return reply{}, err
	}
	if err := x.record(req, gvk, o.fieldManager); err != nil {
		return reply{}, err
	}
	e, ok := x.s.store.Get(x.res.key(x.in.namespace, x.in.name))
	if !ok {
		return reply{}, notFound(x.res.GR(), x.in.name)
	}
	sa, ok := e.Object.(*corev1.ServiceAccount)
	if !ok {
		return reply{}, fmt.Errorf("%s is a %T", e.Key, e.Object)
	}
	seconds := ptr.Deref(req.Spec.ExpirationSeconds, tokenDefault)
	path := field.NewPath("spec", "expirationSeconds")
	switch {
	case seconds < tokenLeast:
		return reply{}, apierrors.NewInvalid(gvk.GroupKind(), "", field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")})
	case seconds > tokenMost:
		return reply{}, apierrors.NewInvalid(gvk.GroupKind(), "", field.ErrorList{field.TooLong(path, "", tokenMost)})
	}
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = []string{Issuer}
	}
	bound, err := x.s.tokenBinding(sa, req.Spec.BoundObjectRef)
	if err != nil {
		return reply{}, err
	}
	now := x.s.wall.Now()
	asked := now.Add(time.Duration(seconds) * time.Second)
	exp := asked
	if bound.Pod != nil && seconds == 3607 { // the projected volume's request: good for a year, but warned of
		bound.WarnAfter = asked.Unix()
		exp = now.Add(365 * 24 * time.Hour)
	}
	token, err := x.s.tokens.sign(tokenClaims{Audience: req.Spec.Audiences, Expiry: exp.Unix(), IssuedAt: now.Unix(), NotBefore: now.Unix(), Issuer: Issuer,
		ID: uuid.NewString(), Subject: "system:serviceaccount:" + sa.Namespace + ":" + sa.Name, Kubernetes: bound})
	if err != nil {
		return reply{}, fmt.Errorf("sign token: %w", err)
	}
	req.Name, req.Namespace, req.UID, req.CreationTimestamp = sa.Name, sa.Namespace, sa.UID, metav1.NewTime(now).Rfc3339Copy()
	req.Spec.ExpirationSeconds = &seconds
	req.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(asked).Rfc3339Copy()}
	return reply{code: 201, object: req}, nil
}

func (s *Server) tokenBinding(sa *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (tokenBinding, error) {
	b := tokenBinding{Namespace: sa.Namespace, ServiceAccount: tokenRef{sa.Name, sa.UID}}
	if ref == nil {
		return b, nil
	}
	resource, ns := "", sa.Namespace
	switch ref.Kind {
	case "Pod":
		resource = "pods"
	case "Secret":
		resource = "secrets"
	case "Node":
		resource, ns = "nodes", ""
	default:
		return b, badRequest("cannot bind token for serviceaccount %q to object type %s", sa.Name, ref.Kind)
	}
	gr := schema.GroupResource{Resource: resource}
	e, ok := s.store.Get(storage.Key{Resource: gr, Namespace: ns, Name: ref.Name})
	if !ok {
		return b, notFound(gr, ref.Name)
	}
	m, err := metaOf(e.Object)
	if err != nil {
		return b, err
	}
	if ref.UID != "" && ref.UID != m.GetUID() {
		return b, apierrors.NewConflict(gr, ref.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	r := &tokenRef{m.GetName(), m.GetUID()}
	switch o := e.Object.(type) {
	case *corev1.Pod:
		if o.Spec.ServiceAccountName != sa.Name {
			return b, badRequest("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name)
		}
		b.Pod = r
		if n, ok := s.store.Get(storage.Key{Resource: nodesResource, Name: o.Spec.NodeName}); ok {
			if nm, err := metaOf(n.Object); err == nil {
				b.Node = &tokenRef{nm.GetName(), nm.GetUID()}
			}
		}
	case *corev1.Secret:
		b.Secret = r
	case *corev1.Node:
		b.Node = r
	}
	return b, nil
}
