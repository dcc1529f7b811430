package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/ratelimit"
)

// refusal is an answer other than 2xx: a code, one line for the operator who reads it on a machine, and when to come again.
type refusal struct {
	code       int
	message    string
	retryAfter time.Duration
}

func (r *refusal) Error() string { return r.message }

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// later refuses for now.
func later(after time.Duration, format string, args ...any) *refusal {
	r := refuse(http.StatusServiceUnavailable, format, args...)
	r.retryAfter = after
	return r
}

// writePlain answers with a refusal as one line of text. Any other error is the hub's own affair: the caller learns only that.
func (s *Server) writePlain(w http.ResponseWriter, r *http.Request, err error) {
	refused := s.asRefusal(r, err)
	refused.setRetryAfter(w)
	http.Error(w, refused.message, refused.code)
}

// writeStatus answers with an error as Kubernetes does.
func (s *Server) writeStatus(w http.ResponseWriter, r *http.Request, err error) {
	var api apierrors.APIStatus
	var status metav1.Status
	if errors.As(err, &api) {
		status = api.Status()
	} else {
		refused := s.asRefusal(r, err)
		refused.setRetryAfter(w)
		status = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(refused.code), Reason: reasonOf(refused.code), Message: refused.message,
		}
		if refused.retryAfter > 0 {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: refused.retryAfterSeconds()}
		}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.logRefusal(r, &status)
	writeJSON(w, int(status.Code), status)
}

// logRefusal tells the operator what a machine asked for and did not get. Conflicts, expired watches and answers of a hub that is busy are
// a part of every day.
func (s *Server) logRefusal(r *http.Request, status *metav1.Status) {
	m, known := r.Context().Value(machineContextKey{}).(*machine)
	if !known {
		return
	}
	switch status.Code {
	case http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return
	}
	if status.Code >= http.StatusInternalServerError {
		return
	}
	if _, ok := s.refusals.Take(m.account.String()); !ok {
		return
	}
	s.log.Info("Request of a machine refused", "Machine", m.machineName(), "Secret", m.plan,
		"method", shortened(r.Method), "path", shortened(loggedPath(r)), "code", status.Code, "reason", shortened(status.Message),
		"client", ratelimit.ClientAddress(r))
}

// maxLogged bounds what is logged of a text that comes from outside.
const maxLogged = 300

func shortened(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + "..."
}

func (s *Server) asRefusal(r *http.Request, err error) *refusal {
	var refused *refusal
	if errors.As(err, &refused) {
		if refused.retryAfter == 0 {
			return refused
		}
		// Those who were refused together shall not come again together.
		spread := *refused
		spread.retryAfter += rand.N(spread.retryAfter)
		return &spread
	}
	if r.Context().Err() == nil {
		s.log.Error(err, "Request failed", "method", r.Method, "path", loggedPath(r), "client", ratelimit.ClientAddress(r))
	}
	return refuse(http.StatusInternalServerError, "the hub could not answer this; its log tells why")
}

func (r *refusal) setRetryAfter(w http.ResponseWriter) {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.retryAfterSeconds())))
	}
}

// retryAfterSeconds rounds up, since 0 would mean at once.
func (r *refusal) retryAfterSeconds() int32 {
	return int32((r.retryAfter + time.Second - 1) / time.Second)
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusMethodNotAllowed:
		return metav1.StatusReasonMethodNotAllowed
	case http.StatusConflict:
		return metav1.StatusReasonConflict
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusNotAcceptable:
		return metav1.StatusReasonNotAcceptable
	case http.StatusRequestEntityTooLarge:
		return metav1.StatusReasonRequestEntityTooLarge
	case http.StatusUnsupportedMediaType:
		return metav1.StatusReasonUnsupportedMediaType
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	default:
		return metav1.StatusReasonInternalError
	}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(encoded, '\n'))
}
