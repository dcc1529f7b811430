package plans

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AgentUpgrade is the value of the key "agent-upgrade": which binary the agent of a machine should be. Without Checksums the agent upgrades
// nothing and only reports its AgentStatus.
type AgentUpgrade struct {
	// Generation is that of the request, as people count it: redeploySystemAgentGeneration of the Cluster.
	Generation int64 `json:"generation"`
	// Checksums are the hexadecimal SHA-256 of the agents that the hub hands out, by GOARCH.
	Checksums map[string]string `json:"checksums,omitempty"`
	// KeyID is the result of KeyID for the public key; empty without Checksums.
	KeyID string `json:"keyID,omitempty"`
	// Sequence grows with every upgrade that is signed for a machine; an agent refuses one that is lower than the last it accepted.
	Sequence int64 `json:"sequence,omitempty"`
	// Signature is ed25519 over all of it and the machine.
	Signature []byte `json:"signature,omitempty"`
}

// UpgradePhase is where the upgrade of an agent stands.
type UpgradePhase string

const (
	// UpgradeNone is reported until an upgrade is requested.
	UpgradeNone UpgradePhase = ""
	// UpgradeDownloading is reported when the download or the replacement has failed and is retried; the message says why.
	UpgradeDownloading UpgradePhase = "downloading"
	// UpgradeWaiting is an agent that has the binary and waits for its current plan.
	UpgradeWaiting UpgradePhase = "waiting"
	// UpgradeDone is an agent that is the requested binary.
	UpgradeDone UpgradePhase = "upgraded"
	// UpgradeRolledBack is an agent that runs again because its successor did not reach the hub; the message says why.
	UpgradeRolledBack UpgradePhase = "rolled-back"
	// UpgradeRefused is an agent that cannot be upgraded by the hub; the message says why.
	UpgradeRefused UpgradePhase = "refused"
)

// AgentStatus is the value of the key "agent-status". An agent writes it only into a Secret that has the key "agent-upgrade": an older hub
// lets no machine write a key that it does not know.
type AgentStatus struct {
	// Version is that of the running agent.
	Version string `json:"version"`
	// Generation is that of the AgentUpgrade which Phase is about; 0 for UpgradeNone.
	Generation int64 `json:"generation,omitempty"`
	// Phase is where that upgrade stands.
	Phase UpgradePhase `json:"phase,omitempty"`
	// Message says why, for people; it has no secret.
	Message string `json:"message,omitempty"`
}

// SignUpgrade signs an upgrade for a machine, which is "namespace/name" of its plan Secret, and returns the value of the key. KeyID and
// Signature of u are ignored.
func SignUpgrade(key ed25519.PrivateKey, u AgentUpgrade, machine string) ([]byte, error) {
	u.KeyID = KeyID(key.Public().(ed25519.PublicKey))
	u.Signature = ed25519.Sign(key, signedUpgrade(u, machine))
	return json.Marshal(u)
}

// DecodeUpgrade decodes the value of the key "agent-upgrade". It verifies nothing.
func DecodeUpgrade(raw []byte) (AgentUpgrade, error) {
	var u AgentUpgrade
	if err := json.Unmarshal(raw, &u); err != nil {
		return AgentUpgrade{}, fmt.Errorf("decoding %s: %w", KeyAgentUpgrade, err)
	}
	return u, nil
}

// Verify checks the signature of an upgrade for a machine. The error wraps ErrSignature unless the key has the wrong form. Whether the
// sequence is newer than the last is for the caller to check.
func (u AgentUpgrade) Verify(key ed25519.PublicKey, machine string) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("the public key has %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	if id := KeyID(key); u.KeyID != id {
		return fmt.Errorf("%w: signed with key %q, this machine trusts %q", ErrSignature, u.KeyID, id)
	}
	if !ed25519.Verify(key, signedUpgrade(u, machine), u.Signature) {
		return fmt.Errorf("%w: checksums, machine, generation or sequence differ from those that were signed", ErrSignature)
	}
	return nil
}

// signedUpgrade is what is signed. The first line distinguishes it from a plan. Architecture and checksum are quoted, so that no value can
// look like several.
func signedUpgrade(u AgentUpgrade, machine string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "drover agent upgrade v1\n%s\n%d\n%d\n", machine, u.Generation, u.Sequence)
	for _, arch := range slices.Sorted(maps.Keys(u.Checksums)) {
		fmt.Fprintf(&b, "%q %q\n", arch, u.Checksums[arch])
	}
	return []byte(b.String())
}
