package registry

import (
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	groupv1beta1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta1"
	groupv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// groupSnapshotKinds are there in all versions that upstream's definitions serve, newest first.
func groupSnapshotKinds() []*Resource {
	classes, contents, groups := groupClasses(), groupContents(), groupSnapshots()
	old := func(kind string) string {
		return "groupsnapshot.storage.k8s.io/v1beta1 " + kind + " is deprecated; use groupsnapshot.storage.k8s.io/v1 " + kind
	}
	return []*Resource{
		classes, contents, groups,
		otherVersion(classes, "v1beta2", "", alloc[groupv1beta2.VolumeGroupSnapshotClass](), alloc[groupv1beta2.VolumeGroupSnapshotClassList]()),
		otherVersion(contents, "v1beta2", "", alloc[groupv1beta2.VolumeGroupSnapshotContent](), alloc[groupv1beta2.VolumeGroupSnapshotContentList]()),
		otherVersion(groups, "v1beta2", "", alloc[groupv1beta2.VolumeGroupSnapshot](), alloc[groupv1beta2.VolumeGroupSnapshotList]()),
		otherVersion(classes, "v1beta1", old("VolumeGroupSnapshotClass"), alloc[groupv1beta1.VolumeGroupSnapshotClass](), alloc[groupv1beta1.VolumeGroupSnapshotClassList]()),
		otherVersion(contents, "v1beta1", old("VolumeGroupSnapshotContent"), alloc[groupv1beta1.VolumeGroupSnapshotContent](), alloc[groupv1beta1.VolumeGroupSnapshotContentList]()),
		otherVersion(groups, "v1beta1", old("VolumeGroupSnapshot"), alloc[groupv1beta1.VolumeGroupSnapshot](), alloc[groupv1beta1.VolumeGroupSnapshotList]()),
	}
}

func groupSnapshots() *Resource {
	return customResource(customKind[groupv1.VolumeGroupSnapshot, *groupv1.VolumeGroupSnapshot]{
		gvk: groupv1.SchemeGroupVersion.WithKind("VolumeGroupSnapshot"), plural: "volumegroupsnapshots", shortNames: []string{"vgs"},
		list:       alloc[groupv1.VolumeGroupSnapshotList](),
		takeStatus: func(obj, from *groupv1.VolumeGroupSnapshot) { obj.Status = from.Status },
		check:      checkGroup,
		columns: told("VolumeGroupSnapshot",
			column{name: "ReadyToUse", kind: "boolean", path: ".status.readyToUse"},
			column{name: "VolumeGroupSnapshotClass", kind: "string", path: ".spec.volumeGroupSnapshotClassName"},
			column{name: "VolumeGroupSnapshotContent", kind: "string", path: ".status.boundVolumeGroupSnapshotContentName"},
			column{name: "CreationTime", kind: "date", path: ".status.creationTime"},
			age,
		),
	})
}

func checkGroup(c *checks, s, old *groupv1.VolumeGroupSnapshot) {
	var was groupv1.VolumeGroupSnapshotSpec
	var source *groupv1.VolumeGroupSnapshotSource
	if old != nil {
		was, source = old.Spec, &old.Spec.Source
	}
	at := field.NewPath("spec", "source")
	selector, content := s.Spec.Source.Selector, s.Spec.Source.VolumeGroupSnapshotContentName
	if selector != nil {
		for i, e := range selector.MatchExpressions {
			at := at.Child("selector", "matchExpressions").Index(i)
			c.present(at.Child("key"), e.Key)
			c.present(at.Child("operator"), string(e.Operator))
		}
	}
	fixed(c, at.Child("selector"), selector, was.Source.Selector, "selector is immutable")
	fixed(c, at.Child("volumeGroupSnapshotContentName"), content, was.Source.VolumeGroupSnapshotContentName, "volumeGroupSnapshotContentName is immutable")
	kept(c, at, selector, was.Source.Selector, "selector is required once set")
	kept(c, at, content, was.Source.VolumeGroupSnapshotContentName, "volumeGroupSnapshotContentName is required once set")
	if changed(s.Spec.Source, source) {
		c.rule(at, whole, (selector == nil) != (content == nil), "exactly one of selector and volumeGroupSnapshotContentName must be set")
	}
	if name := s.Spec.VolumeGroupSnapshotClassName; name != nil && changed(name, &was.VolumeGroupSnapshotClassName) {
		c.rule(field.NewPath("spec", "volumeGroupSnapshotClassName"), *name, *name != "", "volumeGroupSnapshotClassName must not be the empty string when set")
	}
	if s.Status != nil && old != nil && old.Status != nil {
		fixed(c, field.NewPath("status", "boundVolumeGroupSnapshotContentName"), s.Status.BoundVolumeGroupSnapshotContentName, old.Status.BoundVolumeGroupSnapshotContentName,
			"boundVolumeGroupSnapshotContentName is immutable once set")
	}
}

func groupContents() *Resource {
	return customResource(customKind[groupv1.VolumeGroupSnapshotContent, *groupv1.VolumeGroupSnapshotContent]{
		gvk: groupv1.SchemeGroupVersion.WithKind("VolumeGroupSnapshotContent"), plural: "volumegroupsnapshotcontents", shortNames: []string{"vgsc", "vgscs"}, cluster: true,
		list:       alloc[groupv1.VolumeGroupSnapshotContentList](),
		takeStatus: func(obj, from *groupv1.VolumeGroupSnapshotContent) { obj.Status = from.Status },
		check:      checkGroupContent,
		columns: told("VolumeGroupSnapshotContent",
			column{name: "ReadyToUse", kind: "boolean", path: ".status.readyToUse"},
			column{name: "DeletionPolicy", kind: "string", path: ".spec.deletionPolicy"},
			column{name: "Driver", kind: "string", path: ".spec.driver"},
			column{name: "VolumeGroupSnapshotClass", kind: "string", path: ".spec.volumeGroupSnapshotClassName"},
			column{name: "VolumeGroupSnapshotNamespace", kind: "string", path: ".spec.volumeGroupSnapshotRef.namespace"},
			column{name: "VolumeGroupSnapshot", kind: "string", path: ".spec.volumeGroupSnapshotRef.name"},
			age,
		),
	})
}

func checkGroupContent(c *checks, s, old *groupv1.VolumeGroupSnapshotContent) {
	var was groupv1.VolumeGroupSnapshotContentSpec
	var source *groupv1.VolumeGroupSnapshotContentSource
	if old != nil {
		was, source = old.Spec, &old.Spec.Source
	}
	spec := field.NewPath("spec")
	c.oneOf(spec.Child("deletionPolicy"), string(s.Spec.DeletionPolicy), deleteIt, retainIt)
	c.present(spec.Child("driver"), s.Spec.Driver)
	at := spec.Child("source")
	if h := s.Spec.Source.GroupSnapshotHandles; h != nil {
		c.present(at.Child("groupSnapshotHandles", "volumeGroupSnapshotHandle"), h.VolumeGroupSnapshotHandle)
		if h.VolumeSnapshotHandles == nil {
			c.present(at.Child("groupSnapshotHandles", "volumeSnapshotHandles"), "")
		}
	}

	fixed(c, spec.Child("driver"), text(s.Spec.Driver), text(was.Driver), "driver is immutable once set")
	var volumes, oldVolumes *[]string
	if v := s.Spec.Source.VolumeHandles; v != nil {
		volumes = &v
	}
	if v := was.Source.VolumeHandles; v != nil {
		oldVolumes = &v
	}
	handles := s.Spec.Source.GroupSnapshotHandles
	fixed(c, at.Child("groupSnapshotHandles"), handles, was.Source.GroupSnapshotHandles, "groupSnapshotHandles is immutable")
	fixed(c, at.Child("volumeHandles"), volumes, oldVolumes, "volumeHandles is immutable")
	kept(c, at, volumes, oldVolumes, "volumeHandles is required once set")
	kept(c, at, handles, was.Source.GroupSnapshotHandles, "groupSnapshotHandles is required once set")
	if changed(s.Spec.Source, source) {
		c.rule(at, whole, (volumes == nil) != (handles == nil), "exactly one of volumeHandles and groupSnapshotHandles must be set")
	}
	fixed(c, spec.Child("volumeGroupSnapshotClassName"), s.Spec.VolumeGroupSnapshotClassName, was.VolumeGroupSnapshotClassName, "volumeGroupSnapshotClassName is immutable once set")
	checkGroupRef(c, spec.Child("volumeGroupSnapshotRef"), s, old)
	if s.Status != nil && old != nil && old.Status != nil {
		fixed(c, field.NewPath("status", "volumeGroupSnapshotHandle"), s.Status.VolumeGroupSnapshotHandle, old.Status.VolumeGroupSnapshotHandle,
			"volumeGroupSnapshotHandle is immutable once set")
	}
}

func checkGroupRef(c *checks, at *field.Path, s, old *groupv1.VolumeGroupSnapshotContent) {
	ref := s.Spec.VolumeGroupSnapshotRef
	if old == nil || changed(ref, &old.Spec.VolumeGroupSnapshotRef) {
		c.rule(at, whole, ref.Name != "" && ref.Namespace != "", "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set")
	}
	if old == nil {
		return
	}
	was := old.Spec.VolumeGroupSnapshotRef
	c.rule(at, whole, ref.Name == was.Name && ref.Namespace == was.Namespace, "volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable")
	c.rule(at, whole, was.UID == "" || ref.UID == was.UID, "volumeGroupSnapshotRef.uid is immutable once set")
}

func groupClasses() *Resource {
	return customResource(customKind[groupv1.VolumeGroupSnapshotClass, *groupv1.VolumeGroupSnapshotClass]{
		gvk: groupv1.SchemeGroupVersion.WithKind("VolumeGroupSnapshotClass"), plural: "volumegroupsnapshotclasses", shortNames: []string{"vgsclass", "vgsclasses"}, cluster: true,
		list: alloc[groupv1.VolumeGroupSnapshotClassList](),
		check: func(c *checks, s, old *groupv1.VolumeGroupSnapshotClass) {
			policy, driver := field.NewPath("deletionPolicy"), field.NewPath("driver")
			c.oneOf(policy, string(s.DeletionPolicy), deleteIt, retainIt)
			c.present(driver, s.Driver)
			if old == nil {
				return
			}
			fixed(c, policy, text(string(s.DeletionPolicy)), text(string(old.DeletionPolicy)), "deletionPolicy is immutable once set")
			fixed(c, driver, text(s.Driver), text(old.Driver), "driver is immutable once set")
			if s.Parameters != nil && old.Parameters != nil {
				fixed(c, field.NewPath("parameters"), &s.Parameters, &old.Parameters, "parameters are immutable once set")
			}
		},
		columns: append([]column{{name: "Driver", kind: "string", path: ".driver"}}, told("VolumeGroupSnapshotClass", column{name: "DeletionPolicy", kind: "string", path: ".deletionPolicy"}, age)...),
	})
}
