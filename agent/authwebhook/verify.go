// Package authwebhook tells the Kubernetes API server of a cluster whose a token of the hub is, so that people reach the cluster past the
// hub and also while the hub is away. It verifies tokens by the hub's public keys and asks nobody: it has no credential, and no way to
// learn that something was revoked. Therefore it takes only tokens of minutes, and leaves those that last to the hub.
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
	// issuer is what the hub calls itself in its tokens.
	issuer = "drover"
	// leeway is how far the clocks of hub and machine may be apart.
	leeway = 30 * time.Second
	// tokenType is what the header of a user's token calls it.
	tokenType = "drover-user+jwt"

	// foreign is put before names that begin with one of the reserved prefixes, as for requests that come through the hub.
	foreign = "drover:hub:"
	// everybody is the group that the API server adds to every user by itself, administrators the one that may do everything.
	everybody      = "system:authenticated"
	administrators = "system:masters"
)

// reserved begin names that a cluster gives to parts of its own: Kubernetes (ServiceAccounts among them), kubeadm and Drover. The hub's
// Kubernetes means somebody else by them than this cluster's.
var reserved = []string{"system:", "kubeadm:", "drover:"}

// Verifier knows tokens of one hub that are meant for one cluster.
type Verifier struct {
	// Cluster is the name that the hub has for the cluster; tokens name it as their audience.
	Cluster string
	// KeysFile holds the hub's public keys as a JSON Web Key Set. It is read for every token, since it is small and may be replaced.
	KeysFile string
	// Administrators tells that administrators of the hub are administrators of the cluster.
	Administrators bool
	// Now is the clock.
	Now func() time.Time
}

// claims are what the hub says of a user.
type claims struct {
	jwt.Claims
	UserID  string              `json:"uid"`
	Groups  []string            `json:"groups"`
	Extra   map[string][]string `json:"extra"`
	Lasting bool                `json:"lasting"`
}

// Verify returns whose a token is, or why it is nobody's here. The error never quotes the token.
func (v *Verifier) Verify(token string) (*authenticationv1.UserInfo, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(parsed.Headers) != 1 || parsed.Headers[0].ExtraHeaders[jose.HeaderType] != tokenType {
		return nil, errors.New("this is no user's token of the hub") // the cause could quote it
	}
	keys, err := v.keys()
	if err != nil {
		return nil, err
	}
	said, err := verified(parsed, keys)
	if err != nil {
		return nil, err
	}
	expected := jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{v.Cluster}, Time: v.Now()}
	switch err := said.ValidateWithLeeway(expected, leeway); {
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, fmt.Errorf("the token is for another cluster than %s", v.Cluster)
	case errors.Is(err, jwt.ErrExpired):
		return nil, fmt.Errorf("the token has expired at %s", said.Expiry.Time().UTC().Format(time.RFC3339))
	case err != nil:
		return nil, errors.New("the token is not valid: issuer or times are not those that the hub writes")
	case said.Expiry == nil:
		return nil, errors.New("the token has no end, which no token of the hub is without")
	case said.Lasting:
		return nil, errors.New("the token is one that lasts: only the hub knows whether it was revoked; use it through the hub, or a kubeconfig " +
			"without --static here")
	}
	return v.user(said)
}

func (v *Verifier) keys() (*jose.JSONWebKeySet, error) {
	raw, err := os.ReadFile(v.KeysFile)
	if err != nil {
		return nil, fmt.Errorf("reading the hub's public keys: %w", err)
	}
	keys := &jose.JSONWebKeySet{}
	if err := json.Unmarshal(raw, keys); err != nil {
		return nil, fmt.Errorf("reading the hub's public keys in %s: it is no JSON Web Key Set", v.KeysFile)
	}
	for _, key := range keys.Keys {
		if !key.IsPublic() {
			return nil, fmt.Errorf("%s holds a key that is not public; it has to hold the hub's public keys only", v.KeysFile)
		}
	}
	return keys, nil
}

func verified(token *jwt.JSONWebToken, keys *jose.JSONWebKeySet) (*claims, error) {
	for _, key := range keys.Keys {
		said := &claims{}
		if err := token.Claims(key, said); err == nil {
			return said, nil
		}
	}
	return nil, errors.New("the token was not signed by this cluster's hub")
}

// user is who the claims name, by the names that this cluster knows.
func (v *Verifier) user(said *claims) (*authenticationv1.UserInfo, error) {
	if said.Subject == "" {
		return nil, errors.New("the token names no user")
	}
	user := &authenticationv1.UserInfo{Username: local(said.Subject), UID: said.UserID}
	for _, group := range said.Groups {
		switch {
		case group == everybody:
		case group == administrators && v.Administrators:
			user.Groups = append(user.Groups, group)
		default:
			user.Groups = append(user.Groups, local(group))
		}
	}
	for key, values := range said.Extra {
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = values
	}
	return user, nil
}

func local(name string) string {
	for _, prefix := range reserved {
		if strings.HasPrefix(name, prefix) {
			return foreign + name
		}
	}
	return name
}
