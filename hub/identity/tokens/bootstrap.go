package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// A bootstrap token is base64url of 32 bytes: 16 random ones, and the first 16 of the SHA-256 of the machine that it is for. Whoever copies
// the hash of a token to a machine of his own gains nothing. One of an earlier hub is the SHA-256 of the token of a ServiceAccount instead,
// of the same form.

// NewBootstrapToken generates the token with which the machine of an RKEBootstrap registers.
func NewBootstrapToken(bootstrap types.NamespacedName) string {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret[:sha256.Size/2]) // never fails
	copy(secret[sha256.Size/2:], machineSum(bootstrap))
	return base64.URLEncoding.EncodeToString(secret)
}

// IsBootstrapTokenOf reports whether a token, with or without padding, was generated for the machine of an RKEBootstrap.
func IsBootstrapTokenOf(bootstrap types.NamespacedName, token string) bool {
	secret, ok := decodeBootstrapToken(token)
	return ok && subtle.ConstantTimeCompare(secret[sha256.Size/2:], machineSum(bootstrap)) == 1
}

func machineSum(bootstrap types.NamespacedName) []byte {
	sum := sha256.Sum256([]byte(bootstrap.String()))
	return sum[:sha256.Size/2]
}

// AccountBootstrapToken is the bootstrap token that an earlier hub derived from the token of a ServiceAccount: enough to register with, and
// nothing that the Kubernetes API would accept.
func AccountBootstrapToken(accountToken []byte) string {
	sum := sha256.Sum256(accountToken)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// IsBootstrapToken reports whether a string has the form of a bootstrap token, whether it was issued or not.
func IsBootstrapToken(token string) bool {
	_, ok := decodeBootstrapToken(token)
	return ok
}

func decodeBootstrapToken(token string) (secret []byte, ok bool) {
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	return secret, err == nil && len(secret) == sha256.Size
}

// BootstrapTokenHash is the Hash of a bootstrap token, the same with and without padding.
func BootstrapTokenHash(token string) string { return Hash(strings.TrimRight(token, "=")) }
