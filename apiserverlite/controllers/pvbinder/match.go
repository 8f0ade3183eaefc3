package pvbinder

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// bestMatch chooses a volume for a claim, or none. Volumes are looked at in buckets
// of equal access modes, those with the fewest modes first; within the first bucket
// that has a fitting volume the smallest wins. So a large volume of one mode is
// preferred to a small one of two.
func bestMatch(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool) (*corev1.PersistentVolume, error) {
	buckets := map[string][]*corev1.PersistentVolume{}
	modes := map[string]int{}
	for _, v := range volumes {
		if !volume.CheckAccessModes(claim, v) {
			continue
		}
		key, n := modeKey(v.Spec.AccessModes)
		buckets[key] = append(buckets[key], v)
		modes[key] = n
	}
	keys := make([]string, 0, len(buckets))
	for k := range buckets {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if modes[a] != modes[b] {
			return modes[a] - modes[b]
		}
		return strings.Compare(a, b)
	})
	for _, k := range keys {
		v, err := volume.FindMatchingVolume(claim, buckets[k], nil, nil, delayed, true)
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, nil
}

// modeKey names a set of access modes and counts it.
func modeKey(modes []corev1.PersistentVolumeAccessMode) (string, int) {
	var names []string
	for _, m := range modes {
		if !slices.Contains(names, string(m)) {
			names = append(names, string(m))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ","), len(names)
}

// satisfies tells why a volume that the user asked for by name cannot serve the claim.
func satisfies(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	have := v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return errors.New("the volume is marked for deletion \"" + v.Name + "\"")
	case have.Value() < want.Value():
		return errors.New("requested PV is too small")
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(claim):
		return errors.New("storageClassName does not match")
	case ptr.Deref(v.Spec.VolumeAttributesClassName, "") != ptr.Deref(claim.Spec.VolumeAttributesClassName, ""):
		return errors.New("volumeAttributesClassName does not match")
	case volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return errors.New("incompatible volumeMode")
	case !volume.CheckAccessModes(claim, v):
		return errors.New("incompatible accessMode")
	}
	return nil
}
