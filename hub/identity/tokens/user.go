package tokens

import (
	"errors"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

const userType = "drover-user+jwt"

// User is a user as the management cluster knows it.
type User struct {
	Username string
	UID      string
	Groups   []string
	Extra    map[string][]string
}

// UserClaims are the verified claims of a user's token.
type UserClaims struct {
	User
	// Cluster is the one management Cluster that the token is for, which its verifier has to compare.
	Cluster string
	// ID is the name of the Token of a persistent token, else something unique.
	ID                  string
	IssuedAt, ExpiresAt time.Time
	// Persistent tokens are valid only as long as their Token exists.
	Persistent bool
}

type userClaims struct {
	UID        string              `json:"uid,omitempty"`
	Groups     []string            `json:"groups,omitempty"`
	Extra      map[string][]string `json:"extra,omitempty"`
	Persistent bool                `json:"lasting,omitempty"`
}

// UserToken issues a token by which a user reaches one cluster, valid for ttl from now on.
func (i *Issuer) UserToken(user User, cluster string, ttl time.Duration, id string, persistent bool) (string, error) {
	if user.Username == "" || cluster == "" || id == "" || ttl < time.Second {
		return "", errors.New("issuing a user's token: it needs a user, a cluster, an id and a lifetime of a second at least")
	}
	now := i.now()
	return i.sign(userType, jwt.Claims{
		Issuer: Name, Audience: jwt.Audience{cluster}, Subject: user.Username, ID: id,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(ttl)),
	}, userClaims{UID: user.UID, Groups: user.Groups, Extra: user.Extra, Persistent: persistent})
}

// VerifyUser verifies a token of UserToken. Whether a persistent one was revoked is known by its Token only.
func (i *Issuer) VerifyUser(token string, now time.Time) (*UserClaims, error) {
	var standard jwt.Claims
	var own userClaims
	if err := i.parse(token, userType, &standard, &own); err != nil {
		return nil, err
	}
	if err := check(standard, now); err != nil {
		return nil, err
	}
	if standard.Subject == "" || standard.ID == "" || len(standard.Audience) != 1 {
		return nil, ErrForeign
	}
	return &UserClaims{
		User:    User{Username: standard.Subject, UID: own.UID, Groups: own.Groups, Extra: own.Extra},
		Cluster: standard.Audience[0], ID: standard.ID, Persistent: own.Persistent,
		IssuedAt: standard.IssuedAt.Time(), ExpiresAt: standard.Expiry.Time(),
	}, nil
}
