package volumeplugin

// Class says what an error of SetUp, MountDevice and the like means for what is on the node.
type Class int

// The classes.
const (
	// Final: the operation did not happen and is not under way.
	Final Class = iota
	// Uncertain: it may have happened, or still be under way.
	Uncertain
	// Transient: it was not begun, for a reason that should pass; nothing changed.
	Transient
)

// String is the class's name in logs.
func (c Class) String() string { return [...]string{"final", "uncertain", "transient"}[c] }

type classified struct {
	class Class
	err   error
}

func (e *classified) Error() string { return e.err.Error() }
func (e *classified) Unwrap() error { return e.err }

// AsUncertain marks err as Uncertain.
func AsUncertain(err error) error { return &classified{Uncertain, err} }

// AsTransient marks err as Transient.
func AsTransient(err error) error { return &classified{Transient, err} }

// ClassOf returns the class of err. Only the outermost error counts, as in the
// kubelet: an uncertain error that was wrapped into another is final.
func ClassOf(err error) Class {
	if c, ok := err.(*classified); ok { //nolint:errorlint // wrapped classes must not be found
		return c.class
	}
	return Final
}
