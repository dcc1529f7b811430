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

// A registration token is "<id>.<secret>": the id is public and names the token, the secret is 256 bits.
const (
	idLength   = 10
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// MaxLength is far beyond any token that a machine or an agent shows, those of ServiceAccounts included; longer ones need not be looked at.
const MaxLength = 8 << 10

var secretEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewRegistrationID generates the id of a new token.
func NewRegistrationID() (string, error) {
	out := make([]byte, idLength)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(idAlphabet))))
		if err != nil {
			return "", fmt.Errorf("generating the id of a registration token: %w", err)
		}
		out[i] = idAlphabet[n.Int64()]
	}
	return string(out), nil
}

// NewRegistrationToken generates a token that the hub does not know: its Hash and id are put into a ClusterRegistrationToken.
func NewRegistrationToken() (string, error) {
	id, err := NewRegistrationID()
	if err != nil {
		return "", err
	}
	secret := make([]byte, sha256.Size)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("generating a registration token: %w", err)
	}
	return id + "." + secretEncoding.EncodeToString(secret), nil
}

// RegistrationToken is the hub's own token of an id. It is derived from the key, so that the hub can give it to an agent that it deploys
// without storing it.
func (i *Issuer) RegistrationToken(id string) string {
	mac := hmac.New(sha256.New, i.derive)
	_, _ = mac.Write([]byte(id)) // never fails
	return id + "." + secretEncoding.EncodeToString(mac.Sum(nil))
}

// RegistrationID is the public part of a token, or "" for one without, as other hubs generate them.
func RegistrationID(token string) string {
	id, _, found := strings.Cut(token, ".")
	if !found || len(id) != idLength || strings.Trim(id, idAlphabet) != "" {
		return ""
	}
	return id
}

// IsRegistrationToken reports whether a string has the form of a token, whether it was issued or not.
func IsRegistrationToken(token string) bool {
	_, secret, _ := strings.Cut(token, ".")
	decoded, err := secretEncoding.DecodeString(secret)
	return err == nil && len(decoded) == sha256.Size && RegistrationID(token) != ""
}

// Hash is what the hub stores of a token: the lower-case hex SHA-256 of the whole. Tokens hold enough random bits to make that safe.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// SameHash compares hashes in constant time. An empty one equals nothing.
func SameHash(a, b string) bool {
	return len(a) > 0 && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
