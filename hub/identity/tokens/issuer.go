// Package tokens issues and verifies what agents and people show to the hub: registration tokens, the credentials of agents, and tokens
// by which users reach a cluster. All come from one ed25519 key, in the Secret SecretName of the system namespace, which this package
// alone writes. Otherwise it works on values: which agents and users exist, and which tokens were revoked, is its callers' business.
// Nothing in it may be logged but names and times.
package tokens

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/identity/pki"
)

const (
	// SecretName is the Secret of the system namespace that holds the key.
	SecretName = "drover-token-key"
	keyName    = "token.key"

	// Name is the issuer that tokens name.
	Name = "drover"
	// leeway is how far the clocks of replicas may be apart.
	leeway = time.Minute
)

var (
	// ErrForeign is returned for anything that is not a token of the expected kind, signed with the hub's key.
	ErrForeign = errors.New("the token was not issued by this hub")
	// ErrExpired is returned for a token that was valid once.
	ErrExpired = errors.New("the token has expired")
)

// Issuer signs and verifies tokens.
type Issuer struct {
	public ed25519.PublicKey
	keySet []byte
	now    func() time.Time
	// signers are by the type of token, which the header of each token names, so that none passes for one of another type.
	signers map[string]jose.Signer
	// derive is the key from which registration tokens are derived.
	derive []byte
}

// Ensure returns the Issuer of a hub: it reads the key in the system namespace, and creates it if there is none. It may run in several
// replicas at once.
func Ensure(ctx context.Context, c client.Client, namespace string) (*Issuer, error) {
	key, err := pki.KeySecret{Namespace: namespace, Name: SecretName, DataKey: keyName, Purpose: "tokens"}.Ensure(ctx, c)
	if err != nil {
		return nil, err
	}
	return New(key, time.Now)
}

// New returns an Issuer with a key and a clock.
func New(key ed25519.PrivateKey, now func() time.Time) (*Issuer, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("creating the issuer of tokens: the key has no public half")
	}
	sum := sha256.Sum256(public)
	keyID := base64.RawURLEncoding.EncodeToString(sum[:12])
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: keyID, Algorithm: string(jose.EdDSA), Use: "sig"}}}
	keySet, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encoding the public key of tokens: %w", err)
	}
	i := &Issuer{public: public, keySet: keySet, now: now, signers: map[string]jose.Signer{}}
	for _, kind := range []string{agentType, userType} {
		options := (&jose.SignerOptions{}).WithType(jose.ContentType(kind))
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, options)
		if err != nil {
			return nil, fmt.Errorf("creating the issuer of tokens: %w", err)
		}
		i.signers[kind] = signer
	}
	i.derive, err = hkdf.Key(sha256.New, key.Seed(), nil, "drover registration tokens", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of registration tokens: %w", err)
	}
	return i, nil
}

// PublicKeys is the JSON Web Key Set with which others can verify tokens.
func (i *Issuer) PublicKeys() []byte { return slices.Clone(i.keySet) }

func (i *Issuer) sign(kind string, claims ...any) (string, error) {
	builder := jwt.Signed(i.signers[kind])
	for _, c := range claims {
		builder = builder.Claims(c)
	}
	token, err := builder.Serialize()
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return token, nil
}

// parse verifies type and signature of a token and decodes its claims; check verifies issuer and times.
func (i *Issuer) parse(token, kind string, claims ...any) error {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(parsed.Headers) != 1 || parsed.Headers[0].ExtraHeaders[jose.HeaderType] != kind {
		return ErrForeign // the cause could quote the token
	}
	if err := parsed.Claims(i.public, claims...); err != nil {
		return ErrForeign
	}
	return nil
}

func check(claims jwt.Claims, now time.Time) error {
	err := claims.ValidateWithLeeway(jwt.Expected{Issuer: Name, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return ErrExpired
	case err != nil || claims.Expiry == nil:
		return ErrForeign
	}
	return nil
}

// Unverified are the claims of a JSON Web Token that nobody has verified; zero for any other token.
type Unverified struct {
	Issuer  string  `json:"iss"`
	Subject string  `json:"sub"`
	Expiry  float64 `json:"exp"`
}

// ReadUnverified decodes the claims of a JSON Web Token without verifying it.
func ReadUnverified(token string) (claims Unverified) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Unverified{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return Unverified{}
	}
	return claims
}
