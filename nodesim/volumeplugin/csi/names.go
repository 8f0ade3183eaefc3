package csi

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/csi"

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// AttachmentName is the name of the VolumeAttachment of a volume on a node.
func AttachmentName(handle, driver, node string) string { return "csi-" + sum(handle+driver+node) }

// StagingName is the name of the folder in which a volume is staged.
func StagingName(handle string) string { return sum(handle) }

// InlineHandle is the volume id that an inline volume of a pod has towards its driver.
func InlineHandle(uid types.UID, volume string) string { return "csi-" + sum(string(uid)+volume) }
