package apiproxy

import (
	"context"
	"errors"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/util/ratelimit"
)

// authenticate lets nobody through whom the hub does not know.
func (h *Handler) authenticate(next http.Handler) http.Handler {
	failed := h.auditedFailure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
			"the hub does not know these credentials; write a new kubeconfig with \"hub kubeconfig\" if they have expired"))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok, err := h.opts.Authenticator.AuthenticateRequest(r)
		if ok {
			c := callOf(r)
			c.user, c.audience = answer.User, answer.Audiences
			userauth.Trust(r.Context(), answer.User, answer.Audiences...)
			dropCredentials(r.Header)
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), answer.User)))
			return
		}
		switch {
		case errors.Is(err, userauth.ErrTooMany):
			writeError(w, r, retryLater(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "%v", userauth.ErrTooMany))
		case errors.Is(err, userauth.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			h.log.Error(err, "Could not find out who a user is", "client", ratelimit.ClientAddress(r))
			writeError(w, r, unavailable("%v", userauth.ErrUnavailable))
		case errors.Is(err, userauth.ErrSuspended):
			writeError(w, r, statusError(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", userauth.ErrSuspended))
		default:
			h.log.V(1).Info("Refused a user", "client", ratelimit.ClientAddress(r), "reason", reasonOf(err))
			failed.ServeHTTP(w, r)
		}
	})
}

// webSocketToken begins the subprotocol in which browsers send a token.
const webSocketToken = "base64url.bearer.authorization.k8s.io."

// dropCredentials takes out of a request whatever may be a credential: none leaves the hub, also of those that nobody has looked at.
func dropCredentials(header http.Header) {
	header.Del("Authorization")
	header.Del("Cookie")
	const protocols = "Sec-Websocket-Protocol"
	var kept []string
	for _, protocol := range strings.Split(strings.Join(header[protocols], ","), ",") {
		if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, webSocketToken) {
			kept = append(kept, protocol)
		}
	}
	header.Del(protocols)
	if len(kept) > 0 {
		header.Set(protocols, strings.Join(kept, ", "))
	}
}

func reasonOf(err error) string {
	if err == nil {
		return "no credentials"
	}
	return err.Error()
}
