package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	docPolicy   = "Whether the snapshot in the storage system goes with the object: Delete or Retain."
	docDriver   = "Name of the CSI driver, as in its CSIDriver object."
	docReady    = "True once the snapshot can be restored."
	docTaken    = "When the storage system took the snapshot."
	docSize     = "The smallest size of a volume that is made from the snapshot."
	docError    = "The last thing that went wrong. It is taken away when the operation succeeds."
	docClass    = "Name of the class that says how the snapshot is taken."
	docParams   = "Passed on to the driver, which gives them their meaning."
	docObject   = "What is wanted."
	docObserved = "What is."
)

// snapshotDocs describe the snapshot kinds, whose Go types carry no documentation, by kind and path.
var snapshotDocs = map[string]map[string]string{
	"VolumeSnapshot": {
		"": "VolumeSnapshot asks for a snapshot of a claim's volume, or for the use of one that exists.", "spec": docObject, "status": docObserved,
		"spec.source":                           "Where the snapshot comes from: exactly one of its fields, which cannot be changed.",
		"spec.source.persistentVolumeClaimName": "Takes a snapshot of the volume of this claim in the same namespace.",
		"spec.source.volumeSnapshotContentName": "Uses the snapshot of this VolumeSnapshotContent, which must name this object in turn.",
		"spec.volumeSnapshotClassName":          docClass + " The driver's default class if absent.",
		"status.boundVolumeSnapshotContentName": "The VolumeSnapshotContent that stands for the snapshot. Bound only if that names this object too.",
		"status.readyToUse":                     docReady, "status.creationTime": docTaken, "status.restoreSize": docSize, "status.error": docError,
		"status.volumeGroupSnapshotName": "The group snapshot of which this one is a part.",
	},
	"VolumeSnapshotContent": {
		"": "VolumeSnapshotContent is a snapshot in a storage system.", "spec": docObject, "status": docObserved,
		"spec.driver": docDriver, "spec.deletionPolicy": docPolicy, "spec.volumeSnapshotClassName": docClass,
		"spec.source":                      "Where the snapshot comes from: exactly one of its fields, which cannot be changed.",
		"spec.source.volumeHandle":         "The driver's id of the volume to take a snapshot of.",
		"spec.source.snapshotHandle":       "The driver's id of a snapshot that exists.",
		"spec.sourceVolumeMode":            "The mode of the volume that the snapshot is of: Filesystem or Block.",
		"spec.volumeSnapshotRef":           "The VolumeSnapshot to which this one belongs. Name and namespace are needed.",
		"spec.volumeSnapshotRef.name":      "Name of the VolumeSnapshot to which this one belongs.",
		"spec.volumeSnapshotRef.namespace": "Namespace of the VolumeSnapshot to which this one belongs.",
		"status.snapshotHandle":            "The driver's id of the snapshot.",
		"status.creationTime":              docTaken + " In nanoseconds since 1970.",
		"status.restoreSize":               docSize + " In bytes.",
		"status.readyToUse":                docReady,
		"status.error":                     docError,
		"status.volumeGroupSnapshotHandle": "The driver's id of the group snapshot of which this one is a part.",
	},
	"VolumeSnapshotClass": {
		"":       "VolumeSnapshotClass says how a driver takes snapshots.",
		"driver": docDriver, "deletionPolicy": docPolicy + " For snapshots made with this class.", "parameters": docParams,
	},
	"VolumeGroupSnapshot": {
		"": "VolumeGroupSnapshot asks for snapshots of several claims' volumes at one point in time, or for the use of such.", "spec": docObject, "status": docObserved,
		"spec.source":          "Where the group snapshot comes from: exactly one of its fields, which cannot be changed.",
		"spec.source.selector": "Takes snapshots of the claims in the same namespace that have these labels.",
		"spec.source.volumeGroupSnapshotContentName": "Uses this VolumeGroupSnapshotContent, which must name this object in turn.",
		"spec.volumeGroupSnapshotClassName":          docClass + " The driver's default class if absent.",
		"status.boundVolumeGroupSnapshotContentName": "The VolumeGroupSnapshotContent that stands for the group snapshot.",
		"status.readyToUse":                          docReady, "status.creationTime": docTaken, "status.error": docError,
	},
	"VolumeGroupSnapshotContent": {
		"": "VolumeGroupSnapshotContent is a group snapshot in a storage system.", "spec": docObject, "status": docObserved,
		"spec.driver": docDriver, "spec.deletionPolicy": docPolicy, "spec.volumeGroupSnapshotClassName": docClass,
		"spec.source":                           "Where the group snapshot comes from: exactly one of its fields, which cannot be changed.",
		"spec.source.volumeHandles":             "The driver's ids of the volumes to take snapshots of.",
		"spec.source.groupSnapshotHandles":      "The driver's ids of a group snapshot that exists and of the snapshots in it.",
		"spec.volumeGroupSnapshotRef":           "The VolumeGroupSnapshot to which this one belongs. Name and namespace are needed.",
		"spec.volumeGroupSnapshotRef.name":      "Name of the VolumeGroupSnapshot to which this one belongs.",
		"spec.volumeGroupSnapshotRef.namespace": "Namespace of the VolumeGroupSnapshot to which this one belongs.",
		"status.volumeGroupSnapshotHandle":      "The driver's id of the group snapshot.",
		"status.volumeSnapshotInfoList":         "The snapshots in the group.",
		"status.readyToUse":                     docReady, "status.creationTime": docTaken, "status.error": docError,
	},
	"VolumeGroupSnapshotClass": {
		"":       "VolumeGroupSnapshotClass says how a driver takes group snapshots.",
		"driver": docDriver, "deletionPolicy": docPolicy + " For group snapshots made with this class.", "parameters": docParams,
	},
}

// SnapshotText describes a field of a snapshot kind, by its path: spec.driver. It is empty for what is not described.
func SnapshotText(kind, path string) string { return snapshotDocs[kind][path] }

// describeSnapshots fills in snapshotDocs, and what every object's type and metadata are.
func describeSnapshots(models map[string]*spec.Schema, common map[string]string) {
	for name, m := range models {
		docs := snapshotDocs[name[strings.LastIndex(name, ".")+1:]]
		if docs == nil || !strings.HasPrefix(name, "io.k8s.storage.") {
			continue
		}
		for path, text := range docs {
			put(m, path, text)
		}
		for path, text := range common {
			put(m, path, text)
		}
	}
}

// put describes what is at a path of properties, if there is such.
func put(m *spec.Schema, path, text string) {
	if path == "" {
		m.Description = text
		return
	}
	name, rest, _ := strings.Cut(path, ".")
	p, ok := m.Properties[name]
	if !ok {
		return
	}
	put(&p, rest, text)
	m.Properties[name] = p
}
