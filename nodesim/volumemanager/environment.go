package volumemanager

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin/downwardapi"
)

// environment is what a container's variables say; a name that is not in it has no value.
type environment map[string]string

// environmentOf gathers a container's variables. One whose source is missing has no
// value, which matters only to a subPathExpr that names it.
func (m *Manager) environmentOf(ctx context.Context, pod *v1.Pod, c *v1.Container) environment {
	env := environment{}
	for _, from := range c.EnvFrom {
		for k, v := range m.allKeys(ctx, pod.Namespace, from) {
			env[from.Prefix+k] = v
		}
	}
	for _, e := range c.Env {
		if v, ok := m.valueOf(ctx, pod, e); ok {
			if e.ValueFrom == nil {
				v = env.substitute(v, func(name string) string { return "$(" + name + ")" })
			}
			env[e.Name] = v
		}
	}
	return env
}

func (m *Manager) allKeys(ctx context.Context, namespace string, from v1.EnvFromSource) map[string]string {
	core := m.host.Client.CoreV1()
	switch {
	case from.ConfigMapRef != nil:
		if cm, err := core.ConfigMaps(namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{}); err == nil {
			return cm.Data
		}
	case from.SecretRef != nil:
		if s, err := core.Secrets(namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{}); err == nil {
			return texts(s.Data)
		}
	}
	return nil
}

func texts(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for k, v := range data {
		out[k] = string(v)
	}
	return out
}

func (m *Manager) valueOf(ctx context.Context, pod *v1.Pod, e v1.EnvVar) (string, bool) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value, true
	case from.FieldRef != nil:
		return podField(pod, from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		v, ok := m.allKeys(ctx, pod.Namespace, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: from.ConfigMapKeyRef.LocalObjectReference}})[from.ConfigMapKeyRef.Key]
		return v, ok
	case from.SecretKeyRef != nil:
		v, ok := m.allKeys(ctx, pod.Namespace, v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: from.SecretKeyRef.LocalObjectReference}})[from.SecretKeyRef.Key]
		return v, ok
	}
	return "", false
}

// podField reads a field of the pod; those of the status are not part of a volume of the downward API.
func podField(pod *v1.Pod, path string) (string, bool) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, true
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true
	case "status.podIP":
		return pod.Status.PodIP, true
	case "status.hostIP":
		return pod.Status.HostIP, true
	}
	v, err := downwardapi.Field(pod, path)
	return v, err == nil
}

// expand replaces $(NAME) by the variable's value. $$ stands for one $. A variable
// without a value is an error: a wrong directory must not be made or shown.
func (e environment) expand(text string) (string, error) {
	var missing []string
	out := e.substitute(text, func(name string) string {
		missing = append(missing, name)
		return ""
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %q", missing[0])
	}
	return out, nil
}

func (e environment) substitute(text string, without func(name string) string) string {
	var b strings.Builder
	for len(text) > 0 {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:i])
		rest := text[i+1:]
		end := strings.IndexByte(rest, ')')
		switch {
		case rest[0] == '$':
			b.WriteByte('$')
			text = rest[1:]
		case rest[0] == '(' && end > 0:
			name := rest[1:end]
			v, ok := e[name]
			if !ok {
				v = without(name)
			}
			b.WriteString(v)
			text = rest[end+1:]
		default:
			b.WriteByte('$')
			text = rest
		}
	}
	return b.String()
}
