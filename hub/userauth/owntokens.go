package userauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tokens"
)

// settleTime is how long the Token of a token that has just been made may be missing in a cache.
const settleTime = time.Minute

// errRevoked is why a token whose signature is good is none any more.
var errRevoked = errors.New("the Token was deleted, or is not the one that this token was made with")

// Verifier checks signature, issuer and times of the hub's own tokens, as tokens.Issuer does. Its errors do not repeat the token.
type Verifier interface {
	VerifyUser(token string, now time.Time) (*tokens.UserClaims, error)
}

// ownTokens knows the tokens that the hub has made itself. A short one is good by its signature alone; one that lasts is good as long as its
// Token exists.
type ownTokens struct {
	verifier Verifier
	// objects are Tokens as of a moment ago, live as of now.
	objects, live client.Reader
	accounts      *accounts
	// used is told of every use of a token that lasts, and must not block.
	used func(*managementv3.Token)
	now  func() time.Time
}

// AuthenticateToken has no opinion on tokens that are not the hub's.
func (o *ownTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if !claimsToBeOwn(token) {
		return nil, false, nil
	}
	claims, err := o.verifier.VerifyUser(token, o.now())
	if err != nil {
		return nil, false, fmt.Errorf("verifying a token of the hub's own: %w", err)
	}
	groups := claims.Groups
	if claims.Lasting {
		object, err := o.check(ctx, token, claims)
		if err != nil {
			return nil, false, err
		}
		groups = present(groups, object.Spec.User.Groups)
	}
	u := &user.DefaultInfo{Name: claims.Username, UID: claims.UID, Groups: groups, Extra: claims.Extra}
	return &authenticator.Response{User: u, Audiences: authenticator.Audiences{claims.Cluster}}, true, nil
}

// check holds a token that lasts against its Token, and its user against the management cluster.
func (o *ownTokens) check(ctx context.Context, token string, claims *tokens.UserClaims) (*managementv3.Token, error) {
	object := &managementv3.Token{}
	key := client.ObjectKey{Name: claims.ID}
	err := o.objects.Get(ctx, key, object)
	if apierrors.IsNotFound(err) && o.now().Sub(claims.IssuedAt) < settleTime {
		err = o.live.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, errRevoked
	case err != nil:
		return nil, fmt.Errorf("%w: reading Token %s: %w", ErrUnavailable, claims.ID, err)
	}
	sum := sha256.Sum256([]byte(token))
	matches := subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(object.Spec.Hash)) == 1
	if !matches || !object.DeletionTimestamp.IsZero() || object.Spec.ClusterName != claims.Cluster || o.now().After(object.Spec.ExpiresAt.Time) {
		return nil, errRevoked
	}
	if err := o.recheck(ctx, claims, object); err != nil {
		return nil, err
	}
	// The hub's own controllers use theirs all the time, which is worth no write.
	if object.Spec.User.Username != HubUser {
		o.used(object)
	}
	return object, nil
}

// claimsToBeOwn tells whether a token names the hub as its issuer. It believes nothing else of it.
func claimsToBeOwn(token string) bool {
	parts := strings.Split(token, ".")
	if len(token) > maxTokenLength || len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &claims) == nil && claims.Issuer == tokens.Name
}
