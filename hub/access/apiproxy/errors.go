package apiproxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"
)

// codecs write a Status in the form that the client asks for.
var codecs = scheme.Codecs.WithoutConversion()

// writeError answers as an API server does, so that kubectl shows the message.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

func statusError(code int, reason metav1.StatusReason, format string, args ...any) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func badRequest(format string, args ...any) *apierrors.StatusError {
	return statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

func notFound(format string, args ...any) *apierrors.StatusError {
	return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, format, args...)
}

// retryLater refuses for now, with what Retry-After says: a second or two, so that clients that were refused together do not come together.
func retryLater(code int, reason metav1.StatusReason, format string, args ...any) *apierrors.StatusError {
	err := statusError(code, reason, format, args...)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1 + rand.Int32N(2)}
	return err
}

func unavailable(format string, args ...any) *apierrors.StatusError {
	return retryLater(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, format, args...)
}
