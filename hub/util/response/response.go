// Package response has what the hub's HTTP handlers share: errors that carry the answer, JSON answers, and the time that a client has to
// read one.
package response

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultRetry is after how long a client is asked to retry where nothing better is known.
const DefaultRetry = 5 * time.Second

// Error refuses a request.
type Error struct {
	// Code is the HTTP status.
	Code int
	// Message is one line for whoever reads it on the client. It must not repeat a credential.
	Message string
	// RetryAfter becomes the header Retry-After; 0 for none.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf returns an Error without Retry-After.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Retry returns an Error 503 that asks to retry after some time.
func Retry(after time.Duration, format string, args ...any) *Error {
	return &Error{http.StatusServiceUnavailable, fmt.Sprintf(format, args...), after}
}

// TooMany returns an Error 429 that asks to retry after some time, a second at least.
func TooMany(after time.Duration, message string) *Error {
	return &Error{http.StatusTooManyRequests, message, max(after, time.Second)}
}

// IsCode reports whether err is an Error with the HTTP status code.
func IsCode(err error, code int) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// RetryAfterSeconds is RetryAfter in whole seconds, rounded up since 0 would mean at once.
func (e *Error) RetryAfterSeconds() int {
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}

// WriteJSON answers with a body that no cache may keep.
func WriteJSON(w http.ResponseWriter, code int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "encoding the answer failed", http.StatusInternalServerError)
		return
	}
	Write(w, code, "application/json", append(encoded, '\n'))
}

// WriteStatus answers with an error as Kubernetes does. One that is no Error is a fault of the hub: the caller does not see it, and fault
// is called with it.
func WriteStatus(w http.ResponseWriter, err error, fault func(error)) {
	var refused *Error
	if !errors.As(err, &refused) {
		fault(err)
		refused = Errorf(http.StatusInternalServerError, "internal error of the hub; see its log")
	}
	if refused.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(refused.RetryAfterSeconds()))
	}
	WriteJSON(w, refused.Code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(refused.Code), Message: refused.Message,
	})
}

// Write answers with a body that no cache may keep. Its length is sent: only by it a proxy that speaks HTTP/1.0 notices that it is cut off.
func Write(w http.ResponseWriter, code int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = WriteChunks(w, body)
}

const (
	// A body of up to smallBody bytes is sent in frames of smallFrame bytes, a larger one in frames of largeFrame, which is as much as
	// net/http buffers for one.
	smallFrame = 1 << 10
	largeFrame = 4 << 10
	smallBody  = 32 << 10
)

// WriteChunks writes a body in small frames: a connection of HTTP/2 keeps a buffer of the size of its largest frame for its whole life, and
// a hub has ten thousand of them. Most plans are small, and each frame costs some microseconds.
func WriteChunks(w http.ResponseWriter, body []byte) error {
	size := smallFrame
	if len(body) > smallBody {
		size = largeFrame
	}
	control := http.NewResponseController(w)
	for len(body) > size {
		if _, err := w.Write(body[:size]); err != nil {
			return err
		}
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		body = body[size:]
	}
	_, err := w.Write(body)
	return err
}

// SetTimeout sets until when the client must have read what is written from now on. A ResponseWriter that does not support it, such as a
// recorder of a test, has no connection that could be held.
func SetTimeout(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
}

// BearerToken returns the token of the header Authorization, or "".
func BearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
