package userauth

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// cacheDelay is how long the Token of a new token may be missing in a cache.
const cacheDelay = time.Minute

// errRevoked is returned for a token with a valid signature that is no longer accepted.
var errRevoked = errors.New("the Token was deleted, or is not the one that this token was made with")

// Verifier verifies signature, issuer and times of the hub's own tokens, as tokens.Issuer does. Its errors do not repeat the token.
type Verifier interface {
	VerifyUser(token string, now time.Time) (*tokens.UserClaims, error)
}

// ownTokens authenticates tokens that the hub has issued itself. A short-lived one is valid by its signature alone, a persistent one as
// long as its Token exists.
type ownTokens struct {
	verifier Verifier
	// objects reads Tokens from a cache, live from the API.
	objects, live client.Reader
	accounts      *accounts
	// used is called for every use of a persistent token, and must not block.
	used func(*managementv3.Token)
	now  func() time.Time
}

// AuthenticateToken implements authenticator.Token. It leaves tokens that are not the hub's to others.
func (o *ownTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if !claimsToBeOwn(token) {
		return nil, false, nil
	}
	claims, err := o.verifier.VerifyUser(token, o.now())
	if err != nil {
		return nil, false, fmt.Errorf("verifying a token of the hub's own: %w", err)
	}
	groups := claims.Groups
	if claims.Persistent {
		object, err := o.check(ctx, token, claims)
		if err != nil {
			return nil, false, err
		}
		groups = currentGroups(groups, object.Spec.User.Groups)
	}
	u := &user.DefaultInfo{Name: claims.Username, UID: claims.UID, Groups: groups, Extra: claims.Extra}
	return &authenticator.Response{User: u, Audiences: authenticator.Audiences{claims.Cluster}}, true, nil
}

// check compares a persistent token with its Token, and its user with the management cluster.
func (o *ownTokens) check(ctx context.Context, token string, claims *tokens.UserClaims) (*managementv3.Token, error) {
	object := &managementv3.Token{}
	key := client.ObjectKey{Name: claims.ID}
	err := o.objects.Get(ctx, key, object)
	if apierrors.IsNotFound(err) && o.now().Sub(claims.IssuedAt) < cacheDelay {
		err = o.live.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, errRevoked
	case err != nil:
		return nil, fmt.Errorf("%w: reading Token %s: %w", ErrUnavailable, claims.ID, err)
	}
	if !tokens.SameHash(tokens.Hash(token), object.Spec.Hash) || !object.DeletionTimestamp.IsZero() ||
		object.Spec.ClusterName != claims.Cluster || o.now().After(object.Spec.ExpiresAt.Time) {
		return nil, errRevoked
	}
	if err := o.recheck(ctx, claims, object); err != nil {
		return nil, err
	}
	// The hub's own controllers use theirs all the time, which is not recorded.
	if object.Spec.User.Username != HubUser {
		o.used(object)
	}
	return object, nil
}

// claimsToBeOwn reports whether a token names the hub as its issuer, without verifying it.
func claimsToBeOwn(token string) bool {
	return len(token) <= maxTokenLength && tokens.ReadUnverified(token).Issuer == tokens.Name
}
