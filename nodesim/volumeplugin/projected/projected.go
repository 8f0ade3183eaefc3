// Package projected is the volume that shows several sources in one directory, among
// them the service account token that every pod has.
package projected

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/configmap"
	"drydock.dev/drydock/nodesim/volumeplugin/content"
	"drydock.dev/drydock/nodesim/volumeplugin/downwardapi"
	"drydock.dev/drydock/nodesim/volumeplugin/secret"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/projected"

// New returns the plugin.
func New(h *volumeplugin.Host) *content.Plugin {
	t := newTokens(h)
	return content.New(h, content.Kind{
		PluginName: PluginName, Memory: true,
		Is:    func(v *v1.Volume) bool { return v.Projected != nil },
		Empty: func() v1.VolumeSource { return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}} },
		Files: func(ctx context.Context, v *v1.Volume, pod *v1.Pod) (map[string]content.File, error) {
			out := map[string]content.File{}
			var errs []error
			for _, s := range v.Projected.Sources {
				files, err := one(ctx, h, t, s, pod, v.Projected.DefaultMode)
				errs = append(errs, err)
				maps.Copy(out, files)
			}
			return out, errors.Join(errs...)
		},
	})
}

func one(ctx context.Context, h *volumeplugin.Host, t *tokens, s v1.VolumeProjection, pod *v1.Pod, mode *int32) (map[string]content.File, error) {
	switch {
	case s.ConfigMap != nil:
		return configmap.Files(ctx, h, pod.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		return secret.Files(ctx, h, pod.Namespace, s.Secret.Name, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return downwardapi.Files(h, pod, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		token, err := t.get(ctx, pod, s.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		m, user := content.ModeOf(nil, mode), commonUser(pod)
		if user != nil || pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil {
			m = 0o600 // only the group may read beside the owner, which its change grants
		}
		return map[string]content.File{s.ServiceAccountToken.Path: {Data: []byte(token), Mode: m, User: user}}, nil
	case s.ClusterTrustBundle != nil:
		return nil, errors.New("projected source clusterTrustBundle: this node does not have it")
	case s.PodCertificate != nil:
		return nil, errors.New("projected source podCertificate: this node does not have it")
	}
	return nil, fmt.Errorf("projected volume has a source of no known kind")
}

// commonUser is whom all containers of the pod run as, nil if one does not say or they differ.
func commonUser(pod *v1.Pod) *int64 {
	var common *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		common = sc.RunAsUser
	}
	own := []*v1.SecurityContext{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		own = append(own, c.SecurityContext)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		own = append(own, c.SecurityContext)
	}
	var user *int64
	for _, sc := range own {
		of := common
		if sc != nil && sc.RunAsUser != nil {
			of = sc.RunAsUser
		}
		if of == nil || user != nil && *user != *of {
			return nil
		}
		user = of
	}
	return user
}
