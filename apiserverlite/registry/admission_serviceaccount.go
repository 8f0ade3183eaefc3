package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
)

const (
	defaultAccount   = "default"
	tokenVolume      = "kube-api-access-"
	tokenMountPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds     = 3607 // an hour, and a little that marks tokens which nobody asked for by name
	rootCAConfigMap  = "kube-root-ca.crt"
	accountPatience  = 2 * time.Second
	accountPollEvery = 5 * time.Millisecond
)

// serviceAccount makes each pod run as a service account that exists, and hands it the account's pull
// secrets and, if wanted, token.
type serviceAccount struct {
	tokenVolume bool
	unattended  bool // nobody makes namespaces' default accounts
}

func (s serviceAccount) admit(ctx context.Context, a Attributes) error {
	p := a.Obj.(*corev1.Pod)
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return mirrorPod(a, p)
	}
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = defaultAccount
		p.Spec.DeprecatedServiceAccount = defaultAccount
	}
	if s.unattended && p.Spec.ServiceAccountName == defaultAccount {
		if _, err := a.Reader.Get(accountResource, a.Namespace, defaultAccount); apierrors.IsNotFound(err) {
			return nil
		}
	}
	sa, err := findAccount(ctx, a, p.Spec.ServiceAccountName)
	if err != nil {
		return forbid(a, fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, p.Spec.ServiceAccountName, err))
	}
	if s.tokenVolume && automounts(sa, p) {
		mountToken(p)
	}
	if len(p.Spec.ImagePullSecrets) == 0 {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, sa.ImagePullSecrets...)
	}
	return nil
}

// mirrorPod: a pod that a node made from a file can refer to nothing in the API.
func mirrorPod(a Attributes, p *corev1.Pod) error {
	if p.Spec.ServiceAccountName != "" {
		return forbid(a, errors.New("a mirror pod may not reference service accounts"))
	}
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil {
			return forbid(a, errors.New("a mirror pod may not reference secrets"))
		}
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			if src.Secret != nil {
				return forbid(a, errors.New("a mirror pod may not reference secrets"))
			}
			if src.ServiceAccountToken != nil {
				return forbid(a, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}

// findAccount waits for the default account of a namespace that may be too new to have it: a manifest
// often holds a namespace and what goes into it.
func findAccount(ctx context.Context, a Attributes, name string) (*corev1.ServiceAccount, error) {
	if msgs := content.IsPathSegmentName(name); len(msgs) > 0 { // upstream's client asks for no such name
		return nil, fmt.Errorf("invalid resource name %q: %v", name, msgs)
	}
	ctx, stop := context.WithTimeout(ctx, accountPatience)
	defer stop()
	for {
		o, err := a.Reader.Get(accountResource, a.Namespace, name)
		if err == nil {
			if sa, ok := o.(*corev1.ServiceAccount); ok {
				return sa, nil
			}
			return nil, fmt.Errorf("it is stored as %T", o)
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		if name != defaultAccount {
			break
		}
		// Clients wait in real time, whatever the cluster's clock says.
		t := clock.RealClock{}.NewTimer(accountPollEvery)
		select {
		case <-t.C():
			continue
		case <-ctx.Done():
			t.Stop()
		}
		break
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
}

func automounts(sa *corev1.ServiceAccount, p *corev1.Pod) bool {
	switch {
	case p.Spec.AutomountServiceAccountToken != nil:
		return *p.Spec.AutomountServiceAccountToken
	case sa.AutomountServiceAccountToken != nil:
		return *sa.AutomountServiceAccountToken
	}
	return true
}

// mountToken adds the volume, and mounts it where nothing else is mounted.
func mountToken(p *corev1.Pod) {
	name, have := "", false
	for _, v := range p.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume) {
			name, have = v.Name, true
			break
		}
	}
	if !have {
		name = tokenVolume + utilrand.String(5)
	}
	needed := false
	mount := func(c *corev1.Container) {
		for _, m := range c.VolumeMounts {
			if m.MountPath == tokenMountPath {
				return
			}
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
		needed = true
	}
	for i := range p.Spec.InitContainers {
		mount(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		mount(&p.Spec.Containers[i])
	}
	if needed && !have {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

func tokenSource() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, int64(tokenSeconds)
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}
}
