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
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/util/objects"
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
	// expiredFor is how long the Token of an expired token is kept, for its user to see. At most MaxPerUser are kept.
	expiredFor = 24 * time.Hour
	// maxRemoved bounds how many of them one request deletes, which creates one at most.
	maxRemoved = 20
)

// tokensOf lists the persistent tokens of a user: those that the user holds, and those that have expired.
func (h *Handler) tokensOf(ctx context.Context, u user.Info) (held, expired []managementv3.Token, err error) {
	var list managementv3.TokenList
	if err := h.Client.List(ctx, &list); err != nil {
		return nil, nil, fmt.Errorf("listing the persistent tokens of a user: %w", err)
	}
	now := h.Now()
	for i := range list.Items {
		switch t := list.Items[i]; {
		case t.Spec.User.Username != u.GetName() || t.Spec.User.UID != u.GetUID():
		case now.After(t.Spec.ExpiresAt.Time):
			expired = append(expired, t)
		default:
			held = append(held, t)
		}
	}
	return held, expired, nil
}

// removeExpired deletes Tokens of expired tokens. Nobody else does, and a user who gets one for a minute again and again would have ever
// more of them.
func (h *Handler) removeExpired(ctx context.Context, expired []managementv3.Token) error {
	slices.SortFunc(expired, func(a, b managementv3.Token) int { return b.Spec.ExpiresAt.Compare(a.Spec.ExpiresAt.Time) })
	var errs []error
	for i := range expired {
		if i < MaxPerUser && h.Now().Sub(expired[i].Spec.ExpiresAt.Time) < expiredFor {
			continue
		}
		if errs = append(errs, objects.Delete(ctx, h.Client, &expired[i])); len(errs) == maxRemoved {
			break
		}
	}
	return errors.Join(errs...)
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
	now := h.Now()
	if at := token.Status.ConfirmedAt; at != nil && now.Sub(at.Time) < confirmInterval && at.Sub(now) <= userauth.ConfirmationLeeway {
		return nil
	}
	changed := token.DeepCopy()
	changed.Status.ConfirmedAt = &metav1.Time{Time: now.UTC().Truncate(time.Second)}
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
