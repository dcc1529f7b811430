package plans

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Signature is the value of the key "plan-signature". It proves that the owner of a key made this plan for this machine, after all plans
// with a lower sequence.
type Signature struct {
	// KeyID is the result of KeyID for the public key.
	KeyID string `json:"keyID"`
	// Sequence grows with every plan that is signed for a machine; an agent refuses one that is lower than the last it accepted.
	Sequence int64 `json:"sequence"`
	// Signature is ed25519 over checksum, machine and sequence.
	Signature []byte `json:"signature"`
}

// ErrSignature is wrapped by Verify's error when the signature is missing or does not match, as opposed to one that cannot be decoded.
var ErrSignature = errors.New("invalid signature")

// KeyID names a public key: the first 16 hexadecimal digits of its SHA-256.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// Sign signs the plan of a checksum for a machine, which is "namespace/name" of its plan Secret, and returns the value of the key.
func Sign(key ed25519.PrivateKey, checksum, machine string, sequence int64) ([]byte, error) {
	return json.Marshal(Signature{
		KeyID:     KeyID(key.Public().(ed25519.PublicKey)),
		Sequence:  sequence,
		Signature: ed25519.Sign(key, signed(checksum, machine, sequence)),
	})
}

// Verify checks the value of the key "plan-signature" against a public key and returns it decoded. The error wraps ErrSignature unless raw
// or key have the wrong form. Whether the sequence is newer than the last is for the caller to check.
func Verify(key ed25519.PublicKey, raw []byte, checksum, machine string) (Signature, error) {
	if len(raw) == 0 {
		return Signature{}, fmt.Errorf("%w: the plan is not signed", ErrSignature)
	}
	var s Signature
	if err := json.Unmarshal(raw, &s); err != nil {
		return Signature{}, fmt.Errorf("decoding %s: %w", KeyPlanSignature, err)
	}
	if len(key) != ed25519.PublicKeySize {
		return Signature{}, fmt.Errorf("the public key has %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	if id := KeyID(key); s.KeyID != id {
		return Signature{}, fmt.Errorf("%w: signed with key %q, this machine trusts %q", ErrSignature, s.KeyID, id)
	}
	if !ed25519.Verify(key, signed(checksum, machine, s.Sequence), s.Signature) {
		return Signature{}, fmt.Errorf("%w: plan, machine or sequence differ from those that were signed", ErrSignature)
	}
	return s, nil
}

// signed is what is signed. The first line distinguishes it from anything else that a key may ever sign.
func signed(checksum, machine string, sequence int64) []byte {
	return fmt.Appendf(nil, "drover plan v1\n%s\n%s\n%d\n", checksum, machine, sequence)
}
