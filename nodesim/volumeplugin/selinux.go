package volumeplugin

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// SELinuxMode says which volumes a node mounts with an SELinux label of their own. On
// a node without SELinux every label is empty, and nothing of it has an effect.
type SELinuxMode int

// The modes. A kubelet of 1.37 is SELinuxAll where the machine has SELinux; up to 1.36
// it was SELinuxOncePod.
const (
	SELinuxOff     SELinuxMode = iota
	SELinuxOncePod             // persistent volumes whose only access mode is ReadWriteOncePod
	SELinuxAll                 // all persistent volumes
)

// Allows tells whether a volume may be mounted with a label.
func (m SELinuxMode) Allows(s *Spec) bool {
	if m == SELinuxOff || s.PV == nil {
		return false
	}
	modes := s.PV.Spec.AccessModes
	return m == SELinuxAll || len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}

// SELinuxMounter is a plugin whose drivers may mount with a label.
type SELinuxMounter interface {
	Plugin
	// SELinuxMount tells whether the driver of this volume does.
	SELinuxMount(*Spec) (bool, error)
}

// SELinuxOption is the mount option for a label. The quotes protect its commas.
func SELinuxOption(label string) string { return fmt.Sprintf("context=%q", label) }

// FileLabel is the label that files get for a container with these options. Role and
// type are those of its process only.
func FileLabel(o *v1.SELinuxOptions) string {
	if o == nil || *o == (v1.SELinuxOptions{}) {
		return ""
	}
	user, level := o.User, o.Level
	if user == "" {
		user = "system_u"
	}
	if level == "" {
		level = "s0"
	}
	return user + ":object_r:container_file_t:" + level
}
