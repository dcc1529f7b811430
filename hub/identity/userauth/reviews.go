package userauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/ratelimit"
)

const (
	// The management cluster's review of a token is cached for reviewTTL, a negative one shorter, since the next may be positive.
	reviewTTL    = 10 * time.Second
	rejectionTTL = 5 * time.Second
	// A client may show failureBurst wrong tokens at once, and failuresPerSecond after that, before its tokens are no longer reviewed.
	failuresPerSecond = 2
	failureBurst      = 30
	// maxTokenLength is far beyond any token of a ServiceAccount or of an identity provider.
	maxTokenLength = 16 << 10
	// maxKnown is how many valid tokens are kept, whose holders are not affected by failures of others at the same address, and knownTTL for
	// how long.
	maxKnown = 10000
	knownTTL = 24 * time.Hour
)

var (
	// ErrTooMany is returned without a review to clients that have shown too many wrong tokens.
	ErrTooMany = errors.New("too many requests with wrong credentials from this address")
	// ErrUnavailable is returned if a credential cannot be reviewed, since the API of the management cluster does not answer.
	ErrUnavailable = errors.New("the API of the hub's own cluster does not answer")

	errUnknownToken = errors.New("the management cluster does not know the token")
)

// reviews authenticates tokens of the management cluster. Each review costs that cluster a request, so they are cached and limited.
type reviews struct {
	next     authenticator.Token
	failures *ratelimit.Limiter
	// known are hashes of tokens that were valid at their last review, and the subjects that valid tokens have named.
	known *utilcache.LRUExpireCache
}

func newReviews(client authenticationclient.TokenReviewInterface) *reviews {
	return &reviews{
		next:     cache.New(review{client}, false, reviewTTL, rejectionTTL),
		failures: ratelimit.New(failuresPerSecond, failureBurst),
		known:    utilcache.NewLRUExpireCache(maxKnown),
	}
}

func (r *reviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > maxTokenLength {
		return nil, false, errUnknownToken
	}
	client, hash := clientKey(ctx), sha256.Sum256([]byte(token))
	named := subjectOf(client, token)
	if _, known := r.known.Get(named); named != (subject{}) && known {
		// A renewed token is not limited by failures of others at the same address, only by those in the same name.
		client = named.key()
	}
	if _, known := r.known.Get(hash); !known && r.failures.Empty(client) {
		return nil, false, ErrTooMany
	}
	response, ok, err := r.next.AuthenticateToken(ctx, token)
	switch {
	case ok:
		r.known.Add(hash, nil, knownTTL)
		if named != (subject{}) {
			r.known.Add(named, nil, knownTTL)
		}
	case err == nil:
		r.known.Remove(hash)
		r.failures.Take(client)
		err = errUnknownToken
	}
	return response, ok, err
}

// subject is the user that a token claims to be of, and the client that has shown it.
type subject struct{ client, issuer, name string }

func (s subject) key() string { return s.client + " " + s.issuer + " " + s.name }

// subjectOf reads a JSON Web Token without verifying it. Other tokens have no subject.
func subjectOf(client, token string) subject {
	claims := tokens.ReadUnverified(token)
	if claims.Subject == "" {
		return subject{}
	}
	return subject{client, claims.Issuer, claims.Subject}
}

// review asks the management cluster about a token.
type review struct {
	client authenticationclient.TokenReviewInterface
}

func (r review) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	reviewed, err := r.client.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("%w: reviewing a token: %w", ErrUnavailable, err)
	}
	if !reviewed.Status.Authenticated {
		return nil, false, nil
	}
	who := reviewed.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

type clientKeyType struct{}

// withClientKey passes what a client is limited by to token authenticators, which do not see the request.
func withClientKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKeyType{}, key)
}

func clientKey(ctx context.Context) string {
	key, _ := ctx.Value(clientKeyType{}).(string)
	return key
}
