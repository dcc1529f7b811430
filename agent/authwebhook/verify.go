// Package authwebhook is the webhook token authenticator of a cluster's API server for tokens of the hub, so that people reach the
// cluster without going through the hub, also while it is unreachable. It verifies tokens with the hub's public keys and asks nobody: it
// has no credential, and cannot learn of revocations. Therefore it accepts short-lived tokens only; persistent ones are for the hub.
package authwebhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
)

const (
	// issuer is the issuer of the hub's tokens.
	issuer = "drover"
	// leeway is the tolerated clock skew between hub and machine.
	leeway = 30 * time.Second
	// tokenType is the type in the header of a user's token.
	tokenType = "drover-user+jwt"

	// hubPrefix is prepended to names with a reserved prefix, as for requests through the hub.
	hubPrefix = "drover:hub:"
	// allAuthenticated is the group that the API server adds to every user.
	allAuthenticated = "system:authenticated"
	// administratorsGroup may do everything.
	administratorsGroup = "system:masters"
)

// reservedPrefixes are of names that a cluster gives to its own parts: Kubernetes (ServiceAccounts among them), kubeadm and Drover. In
// the hub's cluster they mean somebody else.
var reservedPrefixes = []string{"system:", "kubeadm:", "drover:"}

// Verifier verifies tokens of one hub for one cluster.
type Verifier struct {
	// Cluster is the name of the management cluster object (c-m-...), which tokens have as audience.
	Cluster string
	// KeysFile is a JSON Web Key Set with the hub's public keys. It is read for every token: it is small, and may be replaced.
	KeysFile string
	// Administrators makes the group system:masters of the hub system:masters of the cluster.
	Administrators bool
}

// claims are the claims of the hub's user tokens.
type claims struct {
	jwt.Claims
	UserID string              `json:"uid"`
	Groups []string            `json:"groups"`
	Extra  map[string][]string `json:"extra"`
	// Persistent is set for a persistent token, which the hub may have revoked.
	Persistent bool `json:"lasting"`
}

// Verify returns the user of a token, or why the token is not accepted. The error never quotes the token.
func (v *Verifier) Verify(token string) (*authenticationv1.UserInfo, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(parsed.Headers) != 1 || parsed.Headers[0].ExtraHeaders[jose.HeaderType] != tokenType {
		return nil, errors.New("not a user token of the hub") // the cause could quote it
	}
	keys, err := v.keys()
	if err != nil {
		return nil, err
	}
	c, err := verifySignature(parsed, keys)
	if err != nil {
		return nil, err
	}
	expected := jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{v.Cluster}, Time: time.Now()}
	switch err := c.ValidateWithLeeway(expected, leeway); {
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, fmt.Errorf("token is for another cluster than %s", v.Cluster)
	case errors.Is(err, jwt.ErrExpired):
		return nil, fmt.Errorf("token expired at %s", c.Expiry.Time().UTC().Format(time.RFC3339))
	case err != nil:
		return nil, errors.New("token is invalid: wrong issuer, or not valid yet")
	case c.Expiry == nil:
		return nil, errors.New("token has no expiry, which all tokens of the hub have")
	case c.Persistent:
		return nil, errors.New("token is persistent, and only the hub knows if it was revoked: use it through the hub, or use a " +
			"kubeconfig without --static here")
	}
	return v.user(c)
}

func (v *Verifier) keys() (*jose.JSONWebKeySet, error) {
	raw, err := os.ReadFile(v.KeysFile)
	if err != nil {
		return nil, fmt.Errorf("reading the hub's public keys: %w", err)
	}
	keys := &jose.JSONWebKeySet{}
	if err := json.Unmarshal(raw, keys); err != nil {
		return nil, fmt.Errorf("decoding the hub's public keys: %s is not a JSON Web Key Set", v.KeysFile)
	}
	for _, key := range keys.Keys {
		if !key.IsPublic() {
			return nil, fmt.Errorf("%s contains a private key; it must contain the hub's public keys only", v.KeysFile)
		}
	}
	return keys, nil
}

func verifySignature(token *jwt.JSONWebToken, keys *jose.JSONWebKeySet) (*claims, error) {
	for _, key := range keys.Keys {
		c := &claims{}
		if err := token.Claims(key, c); err == nil {
			return c, nil
		}
	}
	return nil, errors.New("token was not signed by this cluster's hub")
}

// user is the user of the claims under the names of this cluster.
func (v *Verifier) user(c *claims) (*authenticationv1.UserInfo, error) {
	if c.Subject == "" {
		return nil, errors.New("token has no subject")
	}
	user := &authenticationv1.UserInfo{Username: localName(c.Subject), UID: c.UserID}
	for _, group := range c.Groups {
		switch {
		case group == allAuthenticated:
		case group == administratorsGroup && v.Administrators:
			user.Groups = append(user.Groups, group)
		default:
			user.Groups = append(user.Groups, localName(group))
		}
	}
	for key, values := range c.Extra {
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = values
	}
	return user, nil
}

func localName(name string) string {
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return hubPrefix + name
		}
	}
	return name
}
