package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// A registration token is "<id>.<secret>": the id is public and tells which token it is, the secret is 256 bits.
const (
	idLength   = 10
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

var secretEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewRegistrationID makes the id of a new token.
func NewRegistrationID() (string, error) {
	out := make([]byte, idLength)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(idAlphabet))))
		if err != nil {
			return "", fmt.Errorf("making the id of a registration token: %w", err)
		}
		out[i] = idAlphabet[n.Int64()]
	}
	return string(out), nil
}

// NewRegistrationToken makes a token that only its maker knows. The hub is told its id and its Hash.
func NewRegistrationToken() (string, error) {
	id, err := NewRegistrationID()
	if err != nil {
		return "", err
	}
	secret := make([]byte, sha256.Size)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("making a registration token: %w", err)
	}
	return id + "." + secretEncoding.EncodeToString(secret), nil
}

// RegistrationToken is the hub's own token of an id. It is derived, so that the hub can show it to an agent that it deploys without keeping it.
func (i *Issuer) RegistrationToken(id string) string {
	mac := hmac.New(sha256.New, i.derive)
	_, _ = mac.Write([]byte(id)) // never fails
	return id + "." + secretEncoding.EncodeToString(mac.Sum(nil))
}

// RegistrationID is the public part of a token, or "" of one that has none, as other hubs make them.
func RegistrationID(token string) string {
	id, _, found := strings.Cut(token, ".")
	if !found || len(id) != idLength || strings.Trim(id, idAlphabet) != "" {
		return ""
	}
	return id
}

// Hash is by what the hub knows a token again: the lower-case hex SHA-256 of the whole.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// SameHash compares hashes in a time that tells nothing about them. An empty one is no hash.
func SameHash(a, b string) bool {
	return len(a) > 0 && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
