package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/storage"
)

// status turns any error into the Status object that answers it. This is the only place
// where errors get an HTTP code.
func status(err error) *metav1.Status {
	var api apierrors.APIStatus
	var st metav1.Status
	switch {
	case errors.As(err, &api):
		st = api.Status()
	case errors.Is(err, context.DeadlineExceeded):
		st = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status()
	case errors.Is(err, storage.ErrTooLarge):
		st = apierrors.NewRequestEntityTooLargeError(err.Error()).Status()
	case errors.Is(err, storage.ErrUnavailable):
		st = apierrors.NewServiceUnavailable(err.Error()).Status()
	case errors.Is(err, storage.ErrClosed), errors.Is(err, context.Canceled):
		st = apierrors.NewServiceUnavailable("the server is shutting down").Status()
	default:
		// Upstream answers unknown errors with their text and no reason; kubectl prints it.
		st = metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	}
	if st.Status == "" {
		st.Status = metav1.StatusFailure
	}
	if st.Code == 0 {
		st.Code = http.StatusInternalServerError
		if st.Status == metav1.StatusSuccess {
			st.Code = http.StatusOK
		}
	}
	st.Kind, st.APIVersion = "Status", "v1"
	return &st
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

func notFound(gr schema.GroupResource, name string) error { return apierrors.NewNotFound(gr, name) }

func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// pathNotFound answers a path that is not served.
func pathNotFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{}}}
}

func notAcceptable(types []string) error {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+strings.Join(types, ", "))
}

func unsupportedMedia(types []string) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(types, ", "))
}

func methodNotAllowed(gr schema.GroupResource, verb string) error {
	return apierrors.NewMethodNotSupported(gr, verb)
}

// optimisticLock is the text of a conflict over the resourceVersion.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

func tooLarge(limit int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
}

// expired answers a revision that is no longer known.
func expired(message string) error { return apierrors.NewResourceExpired(message) }

// futureRevision answers a revision that does not exist yet.
func futureRevision(want, have storage.Revision) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
