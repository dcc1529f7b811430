package userauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/response"
)

// maxConnections is how many connections to the gateway one user may have. A client of Kubernetes has one for 100 requests.
const maxConnections = 1024

// Trust marks a request as one of an authenticated user, who may have maxConnections (connlimit.Trust). clusters are those that the
// credential is for, none for all.
func Trust(ctx context.Context, u user.Info, clusters ...string) {
	connlimit.Trust(ctx, connectionKey(u, clusters), maxConnections)
}

// connectionKey is what connections are counted by: the user. The hub's own controllers watch every cluster, so that theirs are counted by
// cluster. They are counted, since whoever may read the kubeconfig Secret of a cluster may have the hub's token for it.
func connectionKey(u user.Info, clusters []string) string {
	if u.GetName() == HubUser {
		return "hub " + strings.Join(clusters, ",")
	}
	return "user " + u.GetName()
}

// Direct authenticates a user by a credential of the hub's Kubernetes. Tokens of the hub's own, which are for one cluster, are no proof
// here. Errors are a *response.Error; refusal is the text for unknown users. Headers that ask for the rights of another user are refused
// rather than passed over: whoever sends them counts on having no more than those.
func Direct(users authenticator.Request, r *http.Request, log logr.Logger, refusal string) (user.Info, error) {
	for header := range r.Header {
		if strings.HasPrefix(header, "Impersonate-") {
			return nil, response.Errorf(http.StatusBadRequest, "the hub impersonates nobody here: leave out the header %.100s "+
				"(--as, --as-group, and as in a kubeconfig)", header)
		}
	}
	found, ok, err := users.AuthenticateRequest(r)
	switch {
	case errors.Is(err, ErrTooMany):
		return nil, response.TooMany(response.DefaultRetry, err.Error())
	case errors.Is(err, ErrUnavailable):
		return nil, response.Retry(time.Second, "%v", ErrUnavailable)
	case err != nil:
		log.V(1).Info("Request of an unknown user refused", "reason", err.Error())
	}
	if err != nil || !ok || len(found.Audiences) > 0 {
		return nil, response.Errorf(http.StatusUnauthorized, "%s", refusal)
	}
	return found.User, nil
}
