package volumemanager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// resizeConditions are the conditions of a claim that belong to an expansion.
var resizeConditions = []v1.PersistentVolumeClaimConditionType{
	v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimFileSystemResizePending,
	v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError,
}

// claimChange is one step of an expansion, as it shows on the claim.
type claimChange struct {
	apply func(m *Manager, s *v1.PersistentVolumeClaimStatus)
	// blind writes over a claim that has changed since it was read.
	blind bool
}

// inProgress says that the node is expanding.
var inProgress = claimChange{apply: func(_ *Manager, s *v1.PersistentVolumeClaimStatus) {
	setResizeStatus(s, v1.PersistentVolumeClaimNodeResizeInProgress)
}}

// finished says that the volume has its size; what was allocated stays on record.
func finished(size resource.Quantity) claimChange {
	return claimChange{apply: func(_ *Manager, s *v1.PersistentVolumeClaimStatus) {
		if s.Capacity == nil {
			s.Capacity = v1.ResourceList{}
		}
		s.Capacity[v1.ResourceStorage] = size
		delete(s.AllocatedResourceStatuses, v1.ResourceStorage)
		if len(s.AllocatedResourceStatuses) == 0 {
			s.AllocatedResourceStatuses = nil
		}
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return slices.Contains(resizeConditions, c.Type)
		})
	}}
}

// failedWith says why the node could not expand, and whether that is for good.
func failedWith(err error, infeasible bool) claimChange {
	return claimChange{blind: true, apply: func(m *Manager, s *v1.PersistentVolumeClaimStatus) {
		if infeasible {
			setResizeStatus(s, v1.PersistentVolumeClaimNodeResizeInfeasible)
		}
		c := v1.PersistentVolumeClaimCondition{Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(m.clock.Now()), Message: fmt.Sprintf("failed to expand pvc with %v", err)}
		i := slices.IndexFunc(s.Conditions, func(x v1.PersistentVolumeClaimCondition) bool { return x.Type == c.Type })
		switch {
		case i < 0:
			s.Conditions = append(s.Conditions, c)
		case s.Conditions[i].Status != c.Status:
			s.Conditions[i] = c
		}
	}}
}

func setResizeStatus(s *v1.PersistentVolumeClaimStatus, to v1.ClaimResourceStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[v1.ResourceStorage] = to
}

// patchClaim writes a change of the claim's status, and returns the claim as it is then.
func (m *Manager) patchClaim(ctx context.Context, claim *v1.PersistentVolumeClaim, change claimChange) (*v1.PersistentVolumeClaim, error) {
	wrap := func(err error) error { return fmt.Errorf("patchPVCStatus failed to patch PVC %q: %w", claim.Name, err) }
	next := claim.DeepCopy()
	change.apply(m, &next.Status)
	was, err := json.Marshal(claim)
	if err != nil {
		return claim, wrap(err)
	}
	is, err := json.Marshal(next)
	if err != nil {
		return claim, wrap(err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.PersistentVolumeClaim{})
	if err != nil {
		return claim, wrap(err)
	}
	if !change.blind {
		var fields map[string]any
		if err := json.Unmarshal(patch, &fields); err != nil {
			return claim, wrap(err)
		}
		fields["metadata"] = map[string]any{"resourceVersion": claim.ResourceVersion}
		if patch, err = json.Marshal(fields); err != nil {
			return claim, wrap(err)
		}
	}
	out, err := m.host.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return claim, wrap(err)
	}
	return out, nil
}
