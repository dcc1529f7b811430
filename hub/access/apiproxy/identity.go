package apiproxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"

	"github.com/drover-dev/drover/hub/identity/userauth"
)

// identityHeader is how a replica tells another one as whom a cluster shall get a request.
const identityHeader = "X-Drover-Identity"

// impersonate settles as whom the cluster gets the request: as the user himself, or as whom he has asked to be and was allowed to.
func (h *Handler) impersonate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		u, found := request.UserFrom(r.Context())
		switch {
		case !found:
			writeError(w, r, statusError(http.StatusInternalServerError, "", "the user of the request got lost"))
			return
		default:
			// The agent of a cluster that the hub has not made speaks for nobody whom no rule of the cluster can refuse anything. Whom a
			// user asks to be is somebody of the management cluster as well, whose rules have allowed it.
			downstream := userauth.Downstream
			if u != c.user {
				downstream = userauth.Impersonated
			}
			seen := downstream(u, !c.imported)
			if changesInHeader(seen.Name) || changesInHeader(seen.UID) {
				writeError(w, r, statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
					"the name or UID of user %q begins or ends with a space, and would be another one in the cluster", u.GetName()))
				return
			}
			seen.Groups = slices.DeleteFunc(slices.Clone(seen.Groups), changesInHeader)
			c.downstream = seen
			if c.downstream.GetName() != u.GetName() || !slices.Equal(c.downstream.GetGroups(), u.GetGroups()) {
				audit.LogImpersonatedUser(r.Context(), c.downstream, "")
			}
		}
		next.ServeHTTP(w, r)
	})
}

// changesInHeader reports whether a name arrives at the cluster as another one: a header loses the spaces at both ends of its value. The
// group " system:masters" would arrive as the administrators of the cluster.
func changesInHeader(name string) bool { return strings.Trim(name, " \t\r\n") != name }

// asPeer believes what another replica says of a request.
func (h *Handler) asPeer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		who, err := decodeIdentity(r.Header.Get(identityHeader))
		if err != nil {
			writeError(w, r, badRequest("%v", err))
			return
		}
		c.downstream, c.fromPeer = who, true
		r.Header.Del(identityHeader)
		next.ServeHTTP(w, r)
	})
}

// identity is the value of identityHeader: this as JSON in base64, since names may hold what a header may not.
type identity struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

func encodeIdentity(u user.Info) (string, error) {
	raw, err := json.Marshal(identity{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	if err != nil {
		return "", fmt.Errorf("encoding the user for another replica: %w", err)
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

func decodeIdentity(value string) (user.Info, error) {
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("header %s is not base64", identityHeader)
	}
	var who identity
	if err := json.Unmarshal(raw, &who); err != nil || who.Username == "" {
		return nil, fmt.Errorf("header %s does not hold a user in JSON", identityHeader)
	}
	return &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: who.Extra}, nil
}

// impersonating makes requests of one user of the user whom the cluster shall see.
func impersonating(u user.Info, next http.RoundTripper) http.RoundTripper {
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra(),
	}, next)
}
