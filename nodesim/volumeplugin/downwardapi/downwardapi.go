// Package downwardapi is the volume that shows a pod its own fields as files.
package downwardapi

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/content"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/downward-api"

// New returns the plugin.
func New(h *volumeplugin.Host) *content.Plugin {
	return content.New(h, content.Kind{
		PluginName: PluginName, Memory: true,
		Is:    func(v *v1.Volume) bool { return v.DownwardAPI != nil },
		Empty: func() v1.VolumeSource { return v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}} },
		Files: func(_ context.Context, v *v1.Volume, pod *v1.Pod) (map[string]content.File, error) {
			return Files(h, pod, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
		},
	})
}

// Files collects fields of a pod.
func Files(h *volumeplugin.Host, pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode *int32) (map[string]content.File, error) {
	out := map[string]content.File{}
	for _, i := range items {
		var text string
		var err error
		switch {
		case i.FieldRef != nil:
			text, err = Field(pod, i.FieldRef.FieldPath)
		case i.ResourceFieldRef != nil:
			text, err = amount(h, pod, i.ResourceFieldRef)
		}
		if err != nil {
			return nil, err
		}
		out[i.Path] = content.File{Data: []byte(text), Mode: content.ModeOf(i.Mode, mode)}
	}
	return out, nil
}

// Field reads a field of a pod by its path.
func Field(pod *v1.Pod, path string) (string, error) {
	if name, key, ok := strings.Cut(path, "['"); ok {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func lines(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+strconv.Quote(v))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// amount is a container's request or limit in units of the divisor, rounded up. A limit that is not set is the node's.
func amount(h *volumeplugin.Host, pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c v1.Container) bool { return c.Name == ref.ContainerName })
	if i < 0 {
		return "", fmt.Errorf("container %q not found", ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var q resource.Quantity
	var ok bool
	switch kind {
	case "limits":
		q, ok = pod.Spec.Containers[i].Resources.Limits[v1.ResourceName(name)]
		if !ok && name == "memory" {
			q = *resource.NewQuantity(h.Memory, resource.BinarySI)
		}
	case "requests":
		q = pod.Spec.Containers[i].Resources.Requests[v1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return strconv.FormatInt((q.MilliValue()+divisor.MilliValue()-1)/divisor.MilliValue(), 10), nil
	}
	return strconv.FormatInt((q.Value()+divisor.Value()-1)/divisor.Value(), 10), nil
}
