package volumeplugin

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Expander is a plugin that can make what is on a volume as large as the volume.
type Expander interface {
	Plugin
	// NodeExpand is idempotent. Besides its class its error may be one of the
	// reasons below, which errors.Is finds.
	NodeExpand(context.Context, *Spec, ExpandArgs) error
}

// ExpandArgs is what NodeExpand needs besides the spec.
type ExpandArgs struct {
	NewSize resource.Quantity
	// OldSize is what the claim says that it has.
	OldSize resource.Quantity
	// Path is where the pod finds the volume: a directory, or the device of a block volume.
	Path string
	// StagePath is where the volume is staged; empty if it is not.
	StagePath string
}

// Reasons for which a volume is not expanded on a node.
var (
	// ErrUnsupported: the driver has nothing to do on nodes.
	ErrUnsupported = errors.New("node expansion is not supported")
	// ErrInfeasible: this size will never work.
	ErrInfeasible = errors.New("this expansion is infeasible")
	// ErrInUse: the volume is in use, and the driver expands it only when it is not.
	ErrInUse = errors.New("the volume is in use")
)

// WithReason adds a reason to an error without changing its text.
func WithReason(err, reason error) error { return &reasoned{err, reason} }

type reasoned struct{ err, reason error }

func (e *reasoned) Error() string   { return e.err.Error() }
func (e *reasoned) Unwrap() []error { return []error{e.err, e.reason} }
