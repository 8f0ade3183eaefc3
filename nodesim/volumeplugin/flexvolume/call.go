package flexvolume

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// errNotSupported is a driver's answer to a call that it leaves to the kubelet.
var errNotSupported = errors.New("Not supported")

// answer is what a driver prints.
type answer struct {
	Status       string        `json:"status"`
	Message      string        `json:"message"`
	Device       string        `json:"device"`
	VolumeName   string        `json:"volumeName"`
	Attached     bool          `json:"attached"`
	Capabilities *capabilities `json:"capabilities"`
}

// capabilities of a driver; what it does not mention it can.
type capabilities struct {
	Attach  *bool `json:"attach"`
	FSGroup *bool `json:"fsGroup"`
	// RequiresFSResize says that the node has to enlarge the filesystem after the volume.
	RequiresFSResize *bool `json:"requiresFSResize"`
}

func is(b *bool) bool { return b == nil || *b }

// call runs the driver's program with a command and its arguments. A command that the
// driver once did not support is not called again.
func (p *Plugin) call(ctx context.Context, volume, command string, args ...string) (answer, error) {
	if p.lacks(command) {
		return answer{}, errNotSupported
	}
	var out []byte
	var runErr error
	err := p.host.Kernel(ctx, "flex-"+command, volume, func() error {
		ctx, cancel := volumeplugin.WithTimeout(ctx, p.host.Lab.Clock, callTimeout)
		defer cancel()
		out, runErr = exec.CommandContext(ctx, p.program, append([]string{command}, args...)...).CombinedOutput()
		return ctx.Err()
	})
	if err != nil {
		return answer{}, fmt.Errorf("%s of FlexVolume driver %s: %w", command, p.name, err)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		return a, fmt.Errorf("%s of FlexVolume driver %s: failed to unmarshal output for command: %q (%w)", command, p.name, out, errors.Join(err, runErr))
	}
	switch {
	case a.Status == errNotSupported.Error():
		p.miss(command)
		return a, errNotSupported
	case a.Status != "Success":
		return a, fmt.Errorf("%s command failed, status: %s, reason: %s", command, a.Status, a.Message)
	case runErr != nil:
		return a, fmt.Errorf("%s of FlexVolume driver %s ended with %w, and says that it succeeded", command, p.name, runErr)
	}
	return a, nil
}

// source is what pod's and PV's FlexVolume sources have in common.
type source struct {
	driver   string
	fsType   string
	readOnly bool
	options  map[string]string
	secret   *v1.SecretReference
}

func sourceOf(s *volumeplugin.Spec, namespace string) (source, bool) {
	switch {
	case s.Volume != nil && s.Volume.FlexVolume != nil:
		f := s.Volume.FlexVolume
		out := source{driver: f.Driver, fsType: f.FSType, readOnly: f.ReadOnly, options: f.Options}
		if f.SecretRef != nil {
			out.secret = &v1.SecretReference{Name: f.SecretRef.Name, Namespace: namespace}
		}
		return out, true
	case s.PV != nil && s.PV.Spec.FlexVolume != nil:
		f := s.PV.Spec.FlexVolume
		out := source{driver: f.Driver, fsType: f.FSType, readOnly: s.ReadOnly || f.ReadOnly, options: f.Options, secret: f.SecretRef}
		if out.secret != nil && out.secret.Namespace == "" {
			out.secret = &v1.SecretReference{Name: out.secret.Name, Namespace: namespace}
		}
		return out, true
	}
	return source{}, false
}

// options is the JSON that a driver is given: the kubelet's, then the pod's and its secret's, then the source's own.
func (p *Plugin) options(ctx context.Context, s *volumeplugin.Spec, pod *v1.Pod, group *int64) (string, error) {
	namespace := ""
	if pod != nil {
		namespace = pod.Namespace
	}
	src, ok := sourceOf(s, namespace)
	if !ok {
		return "", fmt.Errorf("spec does not reference a Flex volume type")
	}
	o := map[string]string{"kubernetes.io/fsType": src.fsType, "kubernetes.io/readwrite": "rw", "kubernetes.io/pvOrVolumeName": s.Name()}
	if src.readOnly {
		o["kubernetes.io/readwrite"] = "ro"
	}
	if pod != nil {
		o["kubernetes.io/pod.name"], o["kubernetes.io/pod.namespace"], o["kubernetes.io/pod.uid"] = pod.Name, pod.Namespace, string(pod.UID)
		o["kubernetes.io/serviceAccount.name"] = pod.Spec.ServiceAccountName
	}
	if group != nil {
		o["kubernetes.io/mounterArgs.FsGroup"] = strconv.FormatInt(*group, 10)
	}
	if pod != nil && src.secret != nil {
		secret, err := p.host.Client.CoreV1().Secrets(src.secret.Namespace).Get(ctx, src.secret.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("couldn't get secret %v/%v err: %w", src.secret.Namespace, src.secret.Name, err)
		}
		for k, v := range secret.Data {
			o["kubernetes.io/secret/"+k] = base64.StdEncoding.EncodeToString(v)
		}
	}
	for k, v := range src.options {
		o[k] = v
	}
	b, err := json.Marshal(o)
	return string(b), err
}
