package usertokens

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// MaxPerUser is how many persistent tokens a user may have.
	MaxPerUser = 50
	// MaxOutlive is by how much a token may outlive the credential that was shown for it: otherwise a stolen credential of minutes would
	// give access for months.
	MaxOutlive = 24 * time.Hour
	// confirmInterval is the precision of status.confirmedAt.
	confirmInterval = time.Hour
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

// confirm records on a user's persistent tokens that the user has logged in, and removes the groups that the user has left. A Token that
// keeps such a group is not confirmed, and thus suspended in the end.
func (h *Handler) confirm(ctx context.Context, u user.Info, held []managementv3.Token) error {
	var errs []error
	for i := range held {
		errs = append(errs, h.confirmToken(ctx, u, &held[i]))
	}
	return errors.Join(errs...)
}

func (h *Handler) confirmToken(ctx context.Context, u user.Info, token *managementv3.Token) error {
	still := slices.DeleteFunc(slices.Clone(token.Spec.User.Groups), func(group string) bool {
		return !slices.Contains(u.GetGroups(), group)
	})
	if len(still) < len(token.Spec.User.Groups) {
		changed := token.DeepCopy()
		changed.Spec.User.Groups = still
		if err := h.Client.Patch(ctx, changed, client.MergeFrom(token)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing groups from Token %s: %w", token.Name, err)
		}
		token = changed
	}
	if at := token.Status.ConfirmedAt; at != nil && h.Now().Sub(at.Time) < confirmInterval {
		return nil
	}
	changed := token.DeepCopy()
	changed.Status.ConfirmedAt = &metav1.Time{Time: h.Now().UTC().Truncate(time.Second)}
	if err := h.Client.Status().Patch(ctx, changed, client.MergeFrom(token)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("confirming Token %s: %w", token.Name, err)
	}
	return nil
}

// credentialEnd is when the credential of a request expires; zero for one that does not, or does not say. Of several, the first to expire
// counts. It must be called before the credential is verified, which removes it from the request.
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
	if claims := tokens.ReadUnverified(response.BearerToken(r)); claims.Expiry > 0 {
		ends(time.Unix(int64(claims.Expiry), 0))
	}
	return end
}

// checkEnd refuses a token that would outlive the credential of the request by more than MaxOutlive.
func (h *Handler) checkEnd(request *Request, end time.Time) error {
	if end.IsZero() {
		return nil
	}
	if most := end.Add(MaxOutlive).Sub(h.Now()); request.ttl() > most {
		return badRequest("ttlSeconds %d is too long for your credential, which expires at %s; ask for %d at most, or use a longer-lived "+
			"credential",
			request.TTLSeconds, end.UTC().Format(time.RFC3339), int64(most/time.Second))
	}
	return nil
}
