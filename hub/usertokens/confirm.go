package usertokens

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

const (
	// MaxPerUser is how many persistent tokens a user may have.
	MaxPerUser = 50
	// MaxOutlive is by how much a token may outlast the credential that was shown for it: otherwise one of minutes that was stolen would
	// give access for months.
	MaxOutlive = 24 * time.Hour
	// confirmEvery is how exact status.confirmedAt is.
	confirmEvery = time.Hour
)

// tokensOf lists the persistent tokens of a user that have not expired.
func (h *Handler) tokensOf(ctx context.Context, u user.Info) ([]managementv3.Token, error) {
	var list managementv3.TokenList
	if err := h.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the persistent tokens of a user: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(t managementv3.Token) bool {
		return t.Spec.User.Username != u.GetName() || t.Spec.User.UID != u.GetUID() || h.Now().After(t.Spec.ExpiresAt.Time)
	}), nil
}

// confirm notes on a user's persistent tokens that he has logged in, and takes from them the groups that he is no longer in.
func (h *Handler) confirm(ctx context.Context, u user.Info, tokens []managementv3.Token) error {
	for i := range tokens {
		token := &tokens[i]
		still := slices.DeleteFunc(slices.Clone(token.Spec.User.Groups), func(group string) bool { return !slices.Contains(u.GetGroups(), group) })
		if len(still) < len(token.Spec.User.Groups) {
			changed := token.DeepCopy()
			changed.Spec.User.Groups = still
			if err := h.Client.Patch(ctx, changed, client.MergeFrom(token)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("taking groups from Token %s: %w", token.Name, err)
			}
			token = changed
		}
		if at := token.Status.ConfirmedAt; at != nil && h.Now().Sub(at.Time) < confirmEvery {
			continue
		}
		changed := token.DeepCopy()
		changed.Status.ConfirmedAt = &metav1.Time{Time: h.Now().UTC().Truncate(time.Second)}
		if err := h.Client.Status().Patch(ctx, changed, client.MergeFrom(token)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("confirming Token %s: %w", token.Name, err)
		}
	}
	return nil
}

// credentialEnd is when the credential that a request shows ends; zero for one that does not, or does not say. Of several, the first to end
// counts. It is asked before the credential is verified, which takes it out of the request.
func credentialEnd(r *http.Request) time.Time {
	var end time.Time
	ends := func(at time.Time) {
		if end.IsZero() || at.Before(end) {
			end = at
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		ends(r.TLS.PeerCertificates[0].NotAfter)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	parts := strings.Split(strings.TrimSpace(token), ".")
	if !strings.EqualFold(scheme, "Bearer") || len(parts) != 3 {
		return end
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil && json.Unmarshal(raw, &claims) == nil && claims.Expiry > 0 {
		ends(time.Unix(int64(claims.Expiry), 0))
	}
	return end
}

// checkEnd refuses a token that would outlast the credential that was shown for it by too much.
func (h *Handler) checkEnd(request *Request, end time.Time) error {
	if end.IsZero() {
		return nil
	}
	if most := end.Add(MaxOutlive).Sub(h.Now()); request.ttl() > most {
		return badRequest("ttlSeconds %d is too long for the credential that you have shown, which ends at %s; ask for %d at most, or use one that lasts longer",
			request.TTLSeconds, end.UTC().Format(time.RFC3339), int64(most/time.Second))
	}
	return nil
}
