package gateway

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// maxLogged bounds what is logged of a text that comes from outside, in bytes.
const maxLogged = 300

// writeText answers with an error as one line of text.
func (s *Server) writeText(w http.ResponseWriter, r *http.Request, err error) {
	refused := s.asError(w, r, err)
	s.logRefusedCaller(r, refused)
	http.Error(w, refused.Message, refused.Code)
}

// logRefusedCaller logs who is not let in for good and has not registered: a machine with a registration token that has expired, for
// instance. Whoever reaches the hub can cause such lines, so that they are limited by address and altogether.
func (s *Server) logRefusedCaller(r *http.Request, refused *response.Error) {
	switch refused.Code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusGone:
	default:
		return
	}
	if _, ok := s.refusals.Take(ratelimit.ClientKey(r)); !ok {
		return
	}
	if _, ok := s.unauthenticated.Take(""); !ok {
		return
	}
	s.log.Info("Request refused", "method", shortened(r.Method), "path", shortened(loggedPath(r)), "code", refused.Code,
		"reason", shortened(refused.Message), "client", ratelimit.ClientAddress(r))
}

// writeStatus answers with an error as Kubernetes does. m is the machine that has sent the request; nil if its credential is not verified.
func (s *Server) writeStatus(w http.ResponseWriter, r *http.Request, err error, m *plandelivery.Machine) {
	var api apierrors.APIStatus
	var status metav1.Status
	if errors.As(err, &api) {
		status = api.Status()
	} else {
		refused := s.asError(w, r, err)
		status = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(refused.Code), Message: refused.Message,
			Reason: apierrors.NewGenericServerResponse(refused.Code, "", schema.GroupResource{}, "", "", 0, false).Status().Reason,
		}
		if refused.RetryAfter > 0 {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(refused.RetryAfterSeconds())}
		}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if m != nil {
		s.logRefusal(r, &status, m)
	}
	response.WriteJSON(w, int(status.Code), status)
}

// logRefusal logs what a machine asked for and did not get. Conflicts, expired watches and answers of a busy hub are normal and not logged.
func (s *Server) logRefusal(r *http.Request, status *metav1.Status, m *plandelivery.Machine) {
	switch {
	case status.Code == http.StatusConflict, status.Code == http.StatusGone, status.Code == http.StatusTooManyRequests,
		status.Code >= http.StatusInternalServerError:
		return
	}
	if _, ok := s.refusals.Take(m.Account.String()); !ok {
		return
	}
	s.log.Info("Request of a machine refused", "Machine", m.Name(), "Secret", m.Account,
		"method", shortened(r.Method), "path", shortened(loggedPath(r)), "code", status.Code, "reason", shortened(status.Message),
		"client", ratelimit.ClientAddress(r))
}

func shortened(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogged], "") + "..."
}

// loggedPath is the path of a request without the credential that may be in it.
func loggedPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, registration.ImportPath) {
		return registration.ImportPath + "..."
	}
	return r.URL.Path
}

// asError returns the answer to an error, and sets Retry-After. Faults of the hub are logged and hidden from the caller.
func (s *Server) asError(w http.ResponseWriter, r *http.Request, err error) *response.Error {
	var refused *response.Error
	if !errors.As(err, &refused) {
		if r.Context().Err() == nil {
			s.log.Error(err, "Request failed", "method", r.Method, "path", loggedPath(r), "client", ratelimit.ClientAddress(r))
		}
		return response.Errorf(http.StatusInternalServerError, "internal error of the hub; see its log")
	}
	if refused.RetryAfter == 0 {
		return refused
	}
	// Clients that were refused together must not all retry at the same time.
	spread := *refused
	spread.RetryAfter += rand.N(spread.RetryAfter)
	w.Header().Set("Retry-After", strconv.Itoa(spread.RetryAfterSeconds()))
	return &spread
}
