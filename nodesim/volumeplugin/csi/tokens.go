package csi

import (
	"context"
	"encoding/json"
	"fmt"

	authv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokens asks for the service account tokens that the CSIDriver wants, bound to the pod.
func (m *mounter) tokens(ctx context.Context, d *storagev1.CSIDriver) (map[string]string, error) {
	if d == nil || len(d.Spec.TokenRequests) == 0 {
		return nil, nil
	}
	out := map[string]authv1.TokenRequestStatus{}
	for _, want := range d.Spec.TokenRequests {
		audiences := []string{}
		if want.Audience != "" {
			audiences = append(audiences, want.Audience)
		}
		req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: want.ExpirationSeconds,
			BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.pod.Name, UID: m.pod.UID},
		}}
		got, err := m.p.host.Client.CoreV1().ServiceAccounts(m.pod.Namespace).CreateToken(ctx, m.pod.Spec.ServiceAccountName, req, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("request token of service account %s/%s: %w", m.pod.Namespace, m.pod.Spec.ServiceAccountName, err)
		}
		out[want.Audience] = got.Status
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": string(b)}, nil
}
