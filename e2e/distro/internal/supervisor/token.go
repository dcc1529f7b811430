package supervisor

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// tokenPrefix begins a token that says which authority its cluster has.
const tokenPrefix = "K10"

// ParseToken splits a token into the SHA-256 of the server CA's file, which a short token lacks, and the secret.
func ParseToken(token string) (caHash, secret string, err error) {
	if !strings.HasPrefix(token, tokenPrefix) {
		if token == "" {
			return "", "", errors.New("the token is empty")
		}
		return "", token, nil
	}
	hash, rest, found := strings.Cut(strings.TrimPrefix(token, tokenPrefix), "::")
	if !found || len(hash) != sha256.Size*2 {
		return "", "", errors.New("the token begins with K10 but is not of the form K10<hash>::<user>:<secret>")
	}
	if _, after, found := strings.Cut(rest, ":"); found {
		rest = after
	}
	if rest == "" {
		return "", "", errors.New("the token holds no secret")
	}
	return hash, rest, nil
}

// FormatToken makes a full token for user server or node.
func FormatToken(caFile []byte, user, secret string) string {
	return tokenPrefix + Hash(caFile) + "::" + user + ":" + secret
}

// Hash is the SHA-256 of a file in hexadecimal digits.
func Hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// NewSecret returns a fresh random secret.
func NewSecret() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}
