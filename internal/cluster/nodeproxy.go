package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxyToNode serves /api/v1/nodes/{node}/proxy/...: the API server passes such requests
// on to the kubelet, and here as well it finds none that is stopped, cut off or without power.
func (c *Cluster) proxyToNode(w http.ResponseWriter, r *http.Request) {
	u, ok := c.authenticate(r)
	if !ok {
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	node := chi.URLParam(r, "node")
	review := &authv1.SubjectAccessReview{Spec: authv1.SubjectAccessReviewSpec{User: u.Name, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy", Name: node}}}
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), review, metav1.CreateOptions{})
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	if !review.Status.Allowed {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("nodes %q is forbidden: User %q cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope", node, u.Name))
		return
	}
	m := c.machines[node]
	if m == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("nodes %q not found", node))
		return
	}
	m.mu.Lock()
	kubelet, off := m.kubelet, m.off
	m.mu.Unlock()
	if kubelet == nil || off || m.line.IsCut() {
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			fmt.Sprintf("error trying to reach service: the kubelet of node %s does not answer", node))
		return
	}
	_, path, _ := strings.Cut(r.URL.Path, "/proxy")
	if path == "" {
		path = "/"
	}
	to := r.Clone(r.Context())
	to.URL.Path, to.URL.RawPath, to.RequestURI = path, "", path
	kubelet.Handler().ServeHTTP(w, to)
}

// refuse answers with a Status, as the API server does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message})
}
