package config

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// PlanSignatures is the policy for plans that are not signed with the key of the connection info.
type PlanSignatures string

// The values of PlanSignatures. The empty value is warn if there is a key, otherwise off.
const (
	// SignaturesOff ignores signatures.
	SignaturesOff PlanSignatures = "off"
	// SignaturesWarn logs an invalid signature and applies the plan.
	SignaturesWarn PlanSignatures = "warn"
	// SignaturesEnforce refuses a plan whose signature is missing, invalid, or older than an accepted one.
	SignaturesEnforce PlanSignatures = "enforce"
)

// UnmarshalJSON refuses unknown values: a typing error must not disable the check. YAML decodes an unquoted off as a boolean, so false is
// off, too.
func (p *PlanSignatures) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		if text = string(raw); text == "false" {
			text = string(SignaturesOff)
		}
	}
	switch value := PlanSignatures(text); value {
	case "", SignaturesOff, SignaturesWarn, SignaturesEnforce:
		*p = value
		return nil
	}
	return fmt.Errorf("planSignatures: must be off, warn or enforce, got %q", text)
}

// SigningKey is the public key of plan signatures; nil if the connection info has none.
func (c Connection) SigningKey() (ed25519.PublicKey, error) {
	if c.PlanSigningKey == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.PlanSigningKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("planSigningKey: must be an ed25519 public key of %d bytes in base64", ed25519.PublicKeySize)
	}
	return key, nil
}
