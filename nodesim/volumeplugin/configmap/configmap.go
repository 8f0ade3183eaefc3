// Package configmap is the volume that shows a ConfigMap as files.
package configmap

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/content"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/configmap"

// New returns the plugin.
func New(h *volumeplugin.Host) *content.Plugin {
	return content.New(h, content.Kind{
		PluginName: PluginName,
		Is:         func(v *v1.Volume) bool { return v.ConfigMap != nil },
		Empty:      func() v1.VolumeSource { return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}} },
		Files: func(ctx context.Context, v *v1.Volume, pod *v1.Pod) (map[string]content.File, error) {
			s := v.ConfigMap
			return Files(ctx, h, pod.Namespace, s.Name, s.Items, s.DefaultMode, s.Optional)
		},
	})
}

// Files reads a ConfigMap, live.
func Files(ctx context.Context, h *volumeplugin.Host, namespace, name string, items []v1.KeyToPath, mode *int32, optional *bool) (map[string]content.File, error) {
	may := optional != nil && *optional
	cm, err := h.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && may {
		return map[string]content.File{}, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	files, err := content.Pick("config", data, items, mode, may)
	if err != nil {
		return nil, fmt.Errorf("configmap %w", err)
	}
	return files, nil
}
