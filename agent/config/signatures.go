package config

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// PlanSignatures says what becomes of a plan that is not signed by the key that the machine got when it registered.
type PlanSignatures string

// The values of PlanSignatures. The empty one means warn where there is a key, and off where there is none.
const (
	// SignaturesOff does not look at signatures.
	SignaturesOff PlanSignatures = "off"
	// SignaturesWarn says in the log what is wrong, and executes the plan.
	SignaturesWarn PlanSignatures = "warn"
	// SignaturesEnforce executes nothing of a plan whose signature is missing, wrong, or older than one that was accepted.
	SignaturesEnforce PlanSignatures = "enforce"
)

// UnmarshalJSON refuses every other value: a typing error must not turn the check off. YAML reads a bare off as a boolean, so that false
// means off as well.
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
	return fmt.Errorf("planSignatures: %q is none of off, warn and enforce", text)
}

// SigningKey is the key that the hub signs plans with, or nil where the connection info names none.
func (c Connection) SigningKey() (ed25519.PublicKey, error) {
	if c.PlanSigningKey == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.PlanSigningKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("planSigningKey: is not an ed25519 public key of %d bytes in base64", ed25519.PublicKeySize)
	}
	return key, nil
}
