package control

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
)

// The indexes of pods that several controllers use.
const (
	PodsByClaim = "claim" // key: namespace/claim, generic ephemeral claims included
	PodsByNode  = "node"  // key: node name
)

// Key of a namespaced object.
func Key(namespace, name string) string { return namespace + "/" + name }

// ClaimName is the name of the claim behind a pod's volume, or empty. Ephemeral
// tells that the pod owns the claim.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) (name string, isEphemeral bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v), true
	}
	return "", false
}

// IndexPods adds the indexes of this package to the pod informer.
func IndexPods(informer cache.SharedIndexInformer) {
	Index(informer, PodsByClaim, func(obj interface{}) ([]string, error) {
		pod := obj.(*corev1.Pod)
		var keys []string
		for i := range pod.Spec.Volumes {
			if name, _ := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
				keys = append(keys, Key(pod.Namespace, name))
			}
		}
		return keys, nil
	})
	Index(informer, PodsByNode, func(obj interface{}) ([]string, error) {
		if n := obj.(*corev1.Pod).Spec.NodeName; n != "" {
			return []string{n}, nil
		}
		return nil, nil
	})
}

// Pods returns the pods under a key of one of this package's indexes.
func Pods(indexer cache.Indexer, index, key string) []*corev1.Pod {
	objs, err := indexer.ByIndex(index, key)
	if err != nil {
		return nil // only for an index that IndexPods has not added
	}
	pods := make([]*corev1.Pod, len(objs))
	for i, o := range objs {
		pods[i] = o.(*corev1.Pod)
	}
	return pods
}
