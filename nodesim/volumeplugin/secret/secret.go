// Package secret is the volume that shows a Secret as files, kept in memory where the node has it.
package secret

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/content"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/secret"

// New returns the plugin.
func New(h *volumeplugin.Host) *content.Plugin {
	return content.New(h, content.Kind{
		PluginName: PluginName, Memory: true,
		Is:    func(v *v1.Volume) bool { return v.Secret != nil },
		Empty: func() v1.VolumeSource { return v1.VolumeSource{Secret: &v1.SecretVolumeSource{}} },
		Files: func(ctx context.Context, v *v1.Volume, pod *v1.Pod) (map[string]content.File, error) {
			s := v.Secret
			return Files(ctx, h, pod.Namespace, s.SecretName, s.Items, s.DefaultMode, s.Optional)
		},
	})
}

// Files reads a Secret, live.
func Files(ctx context.Context, h *volumeplugin.Host, namespace, name string, items []v1.KeyToPath, mode *int32, optional *bool) (map[string]content.File, error) {
	may := optional != nil && *optional
	s, err := h.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && may {
		return map[string]content.File{}, nil
	}
	if err != nil {
		return nil, err
	}
	return content.Pick("secret", s.Data, items, mode, may)
}
