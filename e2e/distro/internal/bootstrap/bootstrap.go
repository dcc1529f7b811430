// Package bootstrap keeps in etcd what all servers of a cluster have alike, encrypted with the cluster's token, as k3s does: the
// authorities, the keys of ServiceAccount tokens and those of Secrets. So a snapshot and the token are enough to bring a cluster back.
package bootstrap

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Prefix begins the key in etcd.
const Prefix = "/bootstrap/"

const (
	saltLength = 16
	rounds     = 4096
)

// ErrToken is in the error for data that another token has encrypted.
var ErrToken = errors.New("the cluster's data is encrypted with another token")

// Files holds the contents of files by their path below the server's folder.
type Files map[string][]byte

// Key is where the data is that a token has encrypted.
func Key(token string) string {
	sum := sha256.Sum256([]byte(token))
	return Prefix + hex.EncodeToString(sum[:])[:12]
}

func seal(token string, salt []byte) (cipher.AEAD, error) {
	key, err := pbkdf2.Key(sha256.New, token, salt, rounds, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Encode encrypts files.
func Encode(files Files, token string) ([]byte, error) {
	raw, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltLength)
	_, _ = rand.Read(salt) // never fails
	box, err := seal(token, salt)
	if err != nil {
		return nil, err
	}
	return box.Seal(salt, nil, raw, nil), nil
}

// Decode decrypts files.
func Decode(raw []byte, token string) (Files, error) {
	if len(raw) < saltLength {
		return nil, fmt.Errorf("reading the cluster's data: %d bytes are too few", len(raw))
	}
	box, err := seal(token, raw[:saltLength])
	if err != nil {
		return nil, err
	}
	plain, err := box.Open(nil, nil, raw[saltLength:], nil)
	if err != nil {
		return nil, ErrToken
	}
	var out Files
	return out, json.Unmarshal(plain, &out)
}

// Find decrypts the files among the keys of etcd that begin with Prefix. It returns nothing if there are none.
func Find(keys map[string][]byte, token string) (Files, error) {
	raw, ok := keys[Key(token)]
	switch {
	case ok:
		return Decode(raw, token)
	case len(keys) > 0:
		return nil, ErrToken
	}
	return nil, nil
}
