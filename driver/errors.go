package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/lab"
)

// codedError is an error that knows its gRPC code. The outermost one decides.
type codedError struct {
	code codes.Code
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// GRPCStatus makes status.FromError find the code.
func (e *codedError) GRPCStatus() *status.Status { return status.New(e.code, clip(e.Error())) }

// errorf is fmt.Errorf with a gRPC code. A cause that says its own code (%w) does not override it.
func errorf(code codes.Code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

// codeOf is the code that err is answered with.
func codeOf(err error) codes.Code {
	var coded *codedError
	fault := lab.AsError(err)
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &coded):
		return coded.code
	case fault != nil && (fault.Action == lab.LateOK || fault.Action == lab.Lost):
		return codes.DeadlineExceeded
	case errors.Is(err, lab.ErrKilled):
		return codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, fs.ErrPermission):
		return codes.PermissionDenied
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Internal
}

func toStatus(err error) error { return status.Error(codeOf(err), clip(err.Error())) }

// maxMessage keeps an error's text below the 1024 characters that the status of a
// VolumeAttachment and the note of an event hold: a longer one would be lost whole.
const maxMessage = 800

// clip shortens a text at a character's border, and makes it fit for a protobuf string.
func clip(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + " ..."
}
