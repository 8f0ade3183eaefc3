package registry

import (
	"fmt"
	"sync"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	groupv1beta1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta1"
	groupv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// addSnapshotKinds makes the snapshot kinds known to client-go's scheme, once for the process.
var addSnapshotKinds = sync.OnceValue(func() error {
	for _, add := range []func(*runtime.Scheme) error{snapshotv1.AddToScheme, groupv1.AddToScheme, groupv1beta1.AddToScheme, groupv1beta2.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return fmt.Errorf("add snapshot kinds to the scheme: %w", err)
		}
	}
	return nil
})

// snapshotKinds are served as upstream's custom resources are, without their definitions having to be
// installed. Their definitions' rules are written out here by hand.
func snapshotKinds(Options) []*Resource {
	return append(groupSnapshotKinds(), snapshotClasses(), snapshotContents(), snapshots())
}

var age = column{name: "Age", kind: "date", path: ".metadata.creationTimestamp"}

const (
	deleteIt = string(snapshotv1.VolumeSnapshotContentDelete)
	retainIt = string(snapshotv1.VolumeSnapshotContentRetain)
)

func snapshots() *Resource {
	return customResource(customKind[snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshot]{
		gvk: snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"), plural: "volumesnapshots", shortNames: []string{"vs"},
		list:       alloc[snapshotv1.VolumeSnapshotList](),
		takeStatus: func(obj, from *snapshotv1.VolumeSnapshot) { obj.Status = from.Status },
		check:      checkSnapshot,
		columns: told("VolumeSnapshot",
			column{name: "ReadyToUse", kind: "boolean", path: ".status.readyToUse"},
			column{name: "SourcePVC", kind: "string", path: ".spec.source.persistentVolumeClaimName"},
			column{name: "SourceSnapshotContent", kind: "string", path: ".spec.source.volumeSnapshotContentName"},
			column{name: "RestoreSize", kind: "string", path: ".status.restoreSize"},
			column{name: "SnapshotClass", kind: "string", path: ".spec.volumeSnapshotClassName"},
			column{name: "SnapshotContent", kind: "string", path: ".status.boundVolumeSnapshotContentName"},
			column{name: "CreationTime", kind: "date", path: ".status.creationTime"},
			age,
		),
	})
}

func checkSnapshot(c *checks, s, old *snapshotv1.VolumeSnapshot) {
	var was snapshotv1.VolumeSnapshotSpec
	var source *snapshotv1.VolumeSnapshotSource
	if old != nil {
		was, source = old.Spec, &old.Spec.Source
	}
	at := field.NewPath("spec", "source")
	claim, content := s.Spec.Source.PersistentVolumeClaimName, s.Spec.Source.VolumeSnapshotContentName
	fixed(c, at.Child("persistentVolumeClaimName"), claim, was.Source.PersistentVolumeClaimName, "persistentVolumeClaimName is immutable")
	fixed(c, at.Child("volumeSnapshotContentName"), content, was.Source.VolumeSnapshotContentName, "volumeSnapshotContentName is immutable")
	kept(c, at, claim, was.Source.PersistentVolumeClaimName, "persistentVolumeClaimName is required once set")
	kept(c, at, content, was.Source.VolumeSnapshotContentName, "volumeSnapshotContentName is required once set")
	if changed(s.Spec.Source, source) {
		c.rule(at, whole, (claim == nil) != (content == nil), "exactly one of volumeSnapshotContentName and persistentVolumeClaimName must be set")
	}
	if name := s.Spec.VolumeSnapshotClassName; name != nil && changed(name, &was.VolumeSnapshotClassName) {
		c.rule(field.NewPath("spec", "volumeSnapshotClassName"), *name, *name != "", "volumeSnapshotClassName must not be the empty string when set")
	}
}

func snapshotContents() *Resource {
	return customResource(customKind[snapshotv1.VolumeSnapshotContent, *snapshotv1.VolumeSnapshotContent]{
		gvk: snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotContent"), plural: "volumesnapshotcontents", shortNames: []string{"vsc", "vscs"}, cluster: true,
		list:       alloc[snapshotv1.VolumeSnapshotContentList](),
		takeStatus: func(obj, from *snapshotv1.VolumeSnapshotContent) { obj.Status = from.Status },
		check:      checkSnapshotContent,
		columns: told("VolumeSnapshotContent",
			column{name: "ReadyToUse", kind: "boolean", path: ".status.readyToUse"},
			column{name: "RestoreSize", kind: "integer", path: ".status.restoreSize"},
			column{name: "DeletionPolicy", kind: "string", path: ".spec.deletionPolicy"},
			column{name: "Driver", kind: "string", path: ".spec.driver"},
			column{name: "VolumeSnapshotClass", kind: "string", path: ".spec.volumeSnapshotClassName"},
			column{name: "VolumeSnapshot", kind: "string", path: ".spec.volumeSnapshotRef.name"},
			column{name: "VolumeSnapshotNamespace", kind: "string", path: ".spec.volumeSnapshotRef.namespace"},
			age,
		),
	})
}

func checkSnapshotContent(c *checks, s, old *snapshotv1.VolumeSnapshotContent) {
	var was snapshotv1.VolumeSnapshotContentSpec
	var source *snapshotv1.VolumeSnapshotContentSource
	if old != nil {
		was, source = old.Spec, &old.Spec.Source
	}
	spec := field.NewPath("spec")
	c.oneOf(spec.Child("deletionPolicy"), string(s.Spec.DeletionPolicy), deleteIt, retainIt)
	c.present(spec.Child("driver"), s.Spec.Driver)
	if s.Status != nil {
		c.notNegative(field.NewPath("status", "restoreSize"), s.Status.RestoreSize)
	}

	at := spec.Child("source")
	volume, snapshot := s.Spec.Source.VolumeHandle, s.Spec.Source.SnapshotHandle
	fixed(c, at.Child("snapshotHandle"), snapshot, was.Source.SnapshotHandle, "snapshotHandle is immutable")
	fixed(c, at.Child("volumeHandle"), volume, was.Source.VolumeHandle, "volumeHandle is immutable")
	kept(c, at, volume, was.Source.VolumeHandle, "volumeHandle is required once set")
	kept(c, at, snapshot, was.Source.SnapshotHandle, "snapshotHandle is required once set")
	if changed(s.Spec.Source, source) {
		c.rule(at, whole, (volume == nil) != (snapshot == nil), "exactly one of volumeHandle and snapshotHandle must be set")
	}
	mode, oldMode := (*string)(s.Spec.SourceVolumeMode), (*string)(was.SourceVolumeMode)
	fixed(c, spec.Child("sourceVolumeMode"), mode, oldMode, "sourceVolumeMode is immutable")
	kept(c, spec, mode, oldMode, "sourceVolumeMode is required once set")
	if ref := s.Spec.VolumeSnapshotRef; old == nil || changed(ref, &was.VolumeSnapshotRef) {
		c.rule(spec.Child("volumeSnapshotRef"), whole, ref.Name != "" && ref.Namespace != "", "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set")
	}
}

func snapshotClasses() *Resource {
	return customResource(customKind[snapshotv1.VolumeSnapshotClass, *snapshotv1.VolumeSnapshotClass]{
		gvk: snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotClass"), plural: "volumesnapshotclasses", shortNames: []string{"vsclass", "vsclasses"}, cluster: true,
		list: alloc[snapshotv1.VolumeSnapshotClassList](),
		check: func(c *checks, s, _ *snapshotv1.VolumeSnapshotClass) {
			c.oneOf(field.NewPath("deletionPolicy"), string(s.DeletionPolicy), deleteIt, retainIt)
			c.present(field.NewPath("driver"), s.Driver)
		},
		columns: append([]column{{name: "Driver", kind: "string", path: ".driver"}}, told("VolumeSnapshotClass", column{name: "DeletionPolicy", kind: "string", path: ".deletionPolicy"}, age)...),
	})
}
