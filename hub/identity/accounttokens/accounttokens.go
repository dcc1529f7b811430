// Package accounttokens verifies the tokens of ServiceAccounts that Kubernetes keeps in Secrets, as the API server does and without asking
// it: thousands of machines come back at once after a restart. It judges signature and claims; whether the Secret and the ServiceAccount
// still exist is its callers' business.
package accounttokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const (
	// KeysPath is where an API server publishes the public keys of its tokens, a JSON Web Key Set (RFC 7517).
	KeysPath = "/openid/v1/jwks"
	// issuer is that of every token that is kept in a Secret (legacy.go of k8s.io/kubernetes/pkg/serviceaccount).
	issuer = "kubernetes/serviceaccount"

	// Keys are read again after keysLifetime, since one that was withdrawn must not count for long, and at most each keysPause.
	keysLifetime = 10 * time.Minute
	keysPause    = 10 * time.Second
	keysTimeout  = 10 * time.Second
)

var (
	// ErrUnverified is returned for a token that is not one of these, or is not signed with a known key.
	ErrUnverified = errors.New("the token cannot be verified")
	errNoKeys     = fmt.Errorf("%w: the keys of the API server cannot be read", ErrUnverified)
)

// algorithms are those with which an API server signs tokens.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// Claims say whose a token is.
type Claims struct {
	// Secret holds the token.
	Secret types.NamespacedName
	// Account is the ServiceAccount, with its UID since a later one may have the same name.
	Account types.NamespacedName
	UID     types.UID
}

// Verifier verifies tokens. It may be used at the same time by many.
type Verifier struct {
	fetch func(context.Context) ([]byte, error)
	now   func() time.Time
	log   logr.Logger

	mu sync.Mutex
	// keys are those of the time read; nil if they could not be read at the last attempt, the time of which is attempted.
	keys            *jose.JSONWebKeySet
	read, attempted time.Time
}

// New returns a Verifier. fetch reads the JSON Web Key Set of the API server, as it is at KeysPath.
func New(fetch func(context.Context) ([]byte, error), log logr.Logger) *Verifier {
	return &Verifier{fetch: fetch, now: time.Now, log: log}
}

// Verify returns the claims of a token, or ErrUnverified. The API server knows more: tokens that were not issued into a Secret, and those
// signed with a key that could not be read.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return Claims{}, ErrUnverified // the cause could quote the token
	}
	key, err := v.key(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return Claims{}, err
	}
	var standard jwt.Claims
	var own struct {
		Namespace string    `json:"kubernetes.io/serviceaccount/namespace"`
		Secret    string    `json:"kubernetes.io/serviceaccount/secret.name"`
		Account   string    `json:"kubernetes.io/serviceaccount/service-account.name"`
		UID       types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	}
	if parsed.Claims(key, &standard, &own) != nil || standard.ValidateWithLeeway(jwt.Expected{Issuer: issuer, Time: v.now()}, 0) != nil ||
		own.Namespace == "" || own.Secret == "" || own.Account == "" || own.UID == "" ||
		standard.Subject != serviceaccount.MakeUsername(own.Namespace, own.Account) {
		return Claims{}, ErrUnverified
	}
	return Claims{
		Secret:  types.NamespacedName{Namespace: own.Namespace, Name: own.Secret},
		Account: types.NamespacedName{Namespace: own.Namespace, Name: own.Account}, UID: own.UID,
	}, nil
}

// key returns the public key with an ID. Keys are read again when they are old, or when the ID is not among them.
func (v *Verifier) key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	key := find(v.keys, id)
	if (key == nil || now.Sub(v.read) >= keysLifetime) && (v.attempted.IsZero() || now.Sub(v.attempted) >= keysPause) {
		v.refresh(ctx, now)
		key = find(v.keys, id)
	}
	switch {
	case v.keys == nil:
		return nil, errNoKeys
	case key == nil:
		return nil, ErrUnverified
	}
	return key, nil
}

// refresh reads the keys. Those that it cannot read again do not count any more.
func (v *Verifier) refresh(ctx context.Context, now time.Time) {
	// Others wait for this, whose requests have not ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	failed := v.keys == nil && !v.attempted.IsZero()
	v.keys, v.attempted = nil, now
	set := &jose.JSONWebKeySet{}
	raw, err := v.fetch(ctx)
	if err == nil {
		err = json.Unmarshal(raw, set)
	}
	switch {
	case err == nil:
		v.keys, v.read = set, now
	case !failed:
		v.log.Info("The API server reviews the token of each machine, which takes it longer than the hub: "+
			"its keys cannot be read; allow the hub to get "+KeysPath, "error", err.Error())
	}
}

// find returns the one key of a set that has an ID.
func find(set *jose.JSONWebKeySet, id string) *jose.JSONWebKey {
	if set == nil {
		return nil
	}
	if found := set.Key(id); len(found) == 1 && found[0].IsPublic() && found[0].Valid() {
		return &found[0]
	}
	return nil
}
