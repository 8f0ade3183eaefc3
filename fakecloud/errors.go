package fakecloud

import (
	"errors"
	"fmt"
	"syscall"
)

// Kind classes an error; the API maps it to a status once.
type Kind int

// The kinds of error.
const (
	Internal    Kind = iota // not done, by no fault of the caller
	NotFound                // there is no such thing
	Conflict                // the state of things forbids it: exists already, still attached
	Invalid                 // the request can never work as it is, or not now (pending event)
	Forbidden               // over the account's quota
	Throttled               // too often
	Full                    // this machine's disk is full
	Unavailable             // the cloud is stopping or was killed
)

// Error is what every method of a Cloud returns. Text is the message for the API's
// user; Err, if any, is the cause, with its errno in the chain.
type Error struct {
	Kind Kind
	Text string
	Err  error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, Internal for an error of another making.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Texts that clients look for, letter for letter.
const (
	TextNotFound       = "The resource you were accessing could not be found."
	TextPending        = "Droplet already has a pending event."
	TextAttached       = "This volume is already attached"
	TextDeleteAttached = "failed to delete volume: attached volume cannot be deleted"
	TextDropletFull    = "cannot attach more volumes to the Droplet"
	TextNotAttached    = "error detaching volume from droplet: volume is not attached to droplet"
	TextNoAttachment   = "Attachment not found"
	TextCreateQuota    = "failed to create volume: volume/snapshot capacity limit exceeded"
	TextResizeQuota    = "error resizing volume: volume/snapshot capacity limit exceeded"
	TextBadName        = "failed to create volume: invalid volume name. names must be lowercase and alphanumeric"
	TextVolumeExists   = "failed to create volume: already exists"
	TextSnapshotExists = "already exists"
	TextSnapshotOften  = "failed to create snapshot: this operation is rate-limited - one request per "
	TextAllocations    = "Invalid volume allocations"
	TextDropletLimit   = "creating this/these droplet(s) will exceed your droplet limit"
)

func fail(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Text: fmt.Sprintf(format, args...)}
}

func notFound() *Error { return &Error{Kind: NotFound, Text: TextNotFound} }

// internal wraps a failure below the domain. A full disk says what to do about it.
func internal(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || troubleOf(err) == troubleFull {
		return &Error{Kind: Full, Text: err.Error() + ": free some space on the disk that holds the state directory and try again", Err: err}
	}
	return &Error{Kind: Internal, Text: err.Error(), Err: err}
}
