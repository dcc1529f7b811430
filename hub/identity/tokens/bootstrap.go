package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A bootstrap token is 32 random bytes in base64url. One of an earlier hub is the SHA-256 of the token of a ServiceAccount instead, of the
// same form.

// NewBootstrapToken generates the token with which one machine registers.
func NewBootstrapToken() string {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return base64.URLEncoding.EncodeToString(secret)
}

// AccountBootstrapToken is the bootstrap token that an earlier hub derived from the token of a ServiceAccount: enough to register with, and
// nothing that the Kubernetes API would accept.
func AccountBootstrapToken(accountToken []byte) string {
	sum := sha256.Sum256(accountToken)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// IsBootstrapToken reports whether a string has the form of a bootstrap token, whether it was issued or not.
func IsBootstrapToken(token string) bool {
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	return err == nil && len(secret) == sha256.Size
}

// BootstrapTokenHash is the Hash of a bootstrap token, the same with and without padding.
func BootstrapTokenHash(token string) string { return Hash(strings.TrimRight(token, "=")) }
