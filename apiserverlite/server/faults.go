package server

import (
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
)

// lostError says that there is no answer: the connection breaks.
type lostError struct{ err *lab.Error }

func (e *lostError) Error() string { return e.err.Error() }

// faultAnswer maps what a fault rule decided to what the client sees: Fail to a Status with
// the rule's HTTP code, LateOK to a timeout, Lost to a dropped connection. There is no
// Retry-After: a client library would hide the fault.
func faultAnswer(err error) error {
	f := lab.AsError(err)
	if f == nil {
		return err
	}
	switch f.Action {
	case lab.Lost, lab.Hang:
		return &lostError{f}
	case lab.LateOK:
		return failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, f.Text)
	}
	code, convErr := strconv.Atoi(f.Code)
	if convErr != nil || code < 400 || code > 599 {
		code = http.StatusInternalServerError
	}
	return failure(int32(code), reasonFor(code), f.Text)
}

func reasonFor(code int) metav1.StatusReason {
	switch code {
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusUnprocessableEntity:
		return metav1.StatusReasonInvalid
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	}
	return apierrors.NewGenericServerResponse(code, "", gvrEmpty, "", "", 0, true).ErrStatus.Reason
}
