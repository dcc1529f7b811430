package supervisor

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
)

// tokenPrefix begins a token that says which authority its cluster has.
const tokenPrefix = "K10"

// ParseToken splits a token into the hash of the server's authority, which a short token lacks, and the secret.
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
	return tokenPrefix + authorityHash(caFile) + "::" + user + ":" + secret
}

// authorityHash is what a token knows an authority by: the hash of the file, or of the root in it if other certificates are before it, so
// that a token outlives the rotation of what the root has signed.
func authorityHash(caFile []byte) string {
	var ders [][]byte
	for block, rest := pem.Decode(caFile); block != nil; block, rest = pem.Decode(rest) {
		ders = append(ders, block.Bytes)
	}
	if len(ders) > 1 {
		return Hash(ders[len(ders)-1])
	}
	return Hash(caFile)
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
