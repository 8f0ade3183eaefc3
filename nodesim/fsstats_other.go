//go:build !linux

package nodesim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubestats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fsStats are those of the filesystem at path; only Linux is asked for them.
func fsStats(string, metav1.Time) *kubestats.FsStats { return nil }
