package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	volumeutil "k8s.io/kubernetes/pkg/api/persistentvolume"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	volumevalidation "k8s.io/kubernetes/pkg/volume/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// persistentVolumes are stamped with the time of each change of phase.
func persistentVolumes(clk clock.PassiveClock) *Resource {
	now := func() *metav1.Time {
		t := metav1.NewTime(clk.Now()).Rfc3339Copy()
		return &t
	}
	valid := func(pv, old *core.PersistentVolume) field.ErrorList {
		opts := validation.ValidationOptionsForPersistentVolume(pv, old)
		return append(validation.ValidatePersistentVolume(pv, opts), volumevalidation.ValidatePersistentVolume(pv)...)
	}
	warn := func(_ context.Context, pv, _ *core.PersistentVolume) []string {
		return volumeutil.GetWarningsForPersistentVolume(pv)
	}
	main := rules[core.PersistentVolume]{
		unconditional: true,
		prepareCreate: func(pv *core.PersistentVolume) {
			volumeutil.DropDisabledSpecFields(&pv.Spec, nil)
			pv.Status = core.PersistentVolumeStatus{Phase: core.VolumePending, LastPhaseTransitionTime: now()}
		},
		validate:   func(pv *core.PersistentVolume) field.ErrorList { return valid(pv, nil) },
		warnCreate: func(ctx context.Context, pv *core.PersistentVolume) []string { return warn(ctx, pv, nil) },
		prepareUpdate: func(pv, old *core.PersistentVolume) {
			pv.Status = old.Status
			volumeutil.DropDisabledSpecFields(&pv.Spec, &old.Spec)
		},
		validateUpdate: func(pv, old *core.PersistentVolume) field.ErrorList {
			opts := validation.ValidationOptionsForPersistentVolume(pv, old)
			return append(valid(pv, old), validation.ValidatePersistentVolumeUpdate(pv, old, opts)...)
		},
		warnUpdate: warn,
		ignored:    []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(pv, old *core.PersistentVolume) {
		pv.Spec = old.Spec
		stamp(&pv.Status, &old.Status, now)
	}
	status.validateUpdate = validation.ValidatePersistentVolumeStatusUpdate
	status.warnUpdate = nil
	status.ignored = []*fieldpath.Set{path("spec")}

	return resource(kind[core.PersistentVolume, core.PersistentVolumeList]{
		gvk: corev1.SchemeGroupVersion.WithKind("PersistentVolume"), plural: "persistentvolumes", shortNames: []string{"pv"}, cluster: true,
		object: alloc[corev1.PersistentVolume](), list: alloc[corev1.PersistentVolumeList](),
		rules: main, parts: map[string]rules[core.PersistentVolume]{"status": status},
		fields: nameField,
	})
}

// stamp dates a change of phase, unless the writer has done so.
func stamp(s, old *core.PersistentVolumeStatus, now func() *metav1.Time) {
	t := s.LastPhaseTransitionTime
	switch {
	case s.Phase == old.Phase && t == nil:
		s.LastPhaseTransitionTime = old.LastPhaseTransitionTime
	case s.Phase != old.Phase && (t == nil || t.Equal(old.LastPhaseTransitionTime)):
		s.LastPhaseTransitionTime = now()
	}
}
