package plans

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Signature is the value of the key "plan-signature". It says that the owner of a key made this plan for this machine, after all
// plans with a lower sequence.
type Signature struct {
	// KeyID is KeyID of the public key.
	KeyID string `json:"keyID"`
	// Sequence grows with every plan that is signed for a machine; an agent refuses one that is lower than the last it accepted.
	Sequence int64 `json:"sequence"`
	// Signature is ed25519 over checksum, machine and sequence.
	Signature []byte `json:"signature"`
}

// ErrSignature is wrapped by every error of Verify that is about the signature itself and not about its form.
var ErrSignature = errors.New("the signature does not fit")

// KeyID names a public key: the first 16 hexadecimal digits of its SHA-256.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// Sign signs the plan of a checksum for a machine, which is "namespace/name" of its plan Secret, and gives the value of the key.
func Sign(key ed25519.PrivateKey, checksum, machine string, sequence int64) ([]byte, error) {
	return json.Marshal(Signature{
		KeyID:     KeyID(key.Public().(ed25519.PublicKey)),
		Sequence:  sequence,
		Signature: ed25519.Sign(key, signed(checksum, machine, sequence)),
	})
}

// Verify checks the value of the key against a public key and gives what it holds. Whether the sequence is fresh is the caller's to
// say.
func Verify(key ed25519.PublicKey, raw []byte, checksum, machine string) (Signature, error) {
	if len(raw) == 0 {
		return Signature{}, fmt.Errorf("%w: the plan is not signed", ErrSignature)
	}
	var s Signature
	if err := json.Unmarshal(raw, &s); err != nil {
		return Signature{}, fmt.Errorf("decoding %s: %w", KeyPlanSignature, err)
	}
	if len(key) != ed25519.PublicKeySize {
		return Signature{}, fmt.Errorf("the public key has %d bytes and not %d", len(key), ed25519.PublicKeySize)
	}
	if id := KeyID(key); s.KeyID != id {
		return Signature{}, fmt.Errorf("%w: it was made with key %q and this machine trusts %q", ErrSignature, s.KeyID, id)
	}
	if !ed25519.Verify(key, signed(checksum, machine, s.Sequence), s.Signature) {
		return Signature{}, fmt.Errorf("%w: plan, machine or sequence are others than those that were signed", ErrSignature)
	}
	return s, nil
}

// signed is what is signed. The first line keeps it apart from anything else that a key may ever sign.
func signed(checksum, machine string, sequence int64) []byte {
	return fmt.Appendf(nil, "drover plan v1\n%s\n%s\n%d\n", checksum, machine, sequence)
}
