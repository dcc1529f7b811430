package userauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/drover-dev/drover/hub/ratelimit"
)

const (
	// A verdict of the management cluster on a token is kept for reviewTTL, a bad one shorter, since the next may be another.
	reviewTTL    = 10 * time.Second
	rejectionTTL = 5 * time.Second
	// A client may come with failureBurst wrong tokens at once, and failuresPerSecond after that, before its tokens are no longer looked at.
	failuresPerSecond = 2
	failureBurst      = 30
	// maxTokenLength is far beyond any token of a ServiceAccount or of an identity provider.
	maxTokenLength = 16 << 10
	// maxKnown is how many good tokens are remembered past the failures of others at the same address, and knownTTL for how long.
	maxKnown = 10000
	knownTTL = 24 * time.Hour
)

var (
	// ErrTooMany is why the token of a client was not looked at that came with too many wrong ones.
	ErrTooMany = errors.New("too many requests with wrong credentials from this address")
	// ErrUnavailable is why nobody knows whether a credential is good: the API of the management cluster does not answer.
	ErrUnavailable = errors.New("the API of the hub's own cluster does not answer")

	errUnknownToken = errors.New("the management cluster does not know the token")
)

// reviews knows the tokens of the management cluster. What it asks for costs that cluster a request, so it asks seldom.
type reviews struct {
	next     authenticator.Token
	failures *ratelimit.Limiter
	// known are hashes of tokens that were good when they were looked at last, and the subjects that good tokens have named.
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
		// Whoever renews his token is not limited by what others at his address do, only by what they do in his name.
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

// subject is whom a token claims to be of, and from where it came.
type subject struct{ client, issuer, name string }

func (s subject) key() string { return s.client + " " + s.issuer + " " + s.name }

// subjectOf reads a JSON Web Token without believing it. Of other tokens there is no subject.
func subjectOf(client, token string) subject {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return subject{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return subject{}
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Subject == "" {
		return subject{}
	}
	return subject{client, claims.Issuer, claims.Subject}
}

// review asks the management cluster whose a token is.
type review struct {
	client authenticationclient.TokenReviewInterface
}

func (r review) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	verdict, err := r.client.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("%w: reviewing a token: %w", ErrUnavailable, err)
	}
	if !verdict.Status.Authenticated {
		return nil, false, nil
	}
	who := verdict.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

type clientKeyType struct{}

// withClientKey keeps what a client is limited by for those who see tokens only.
func withClientKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKeyType{}, key)
}

func clientKey(ctx context.Context) string {
	key, _ := ctx.Value(clientKeyType{}).(string)
	return key
}
