package plans

import (
	"crypto/ed25519"
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpgradeSignature(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	u := AgentUpgrade{Generation: 2, Sequence: 7, Checksums: map[string]string{"amd64": "aa", "arm64": "bb"}}
	raw, err := SignUpgrade(private, u, "fleet/m1")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := DecodeUpgrade(raw)
	if err != nil || signed.Verify(public, "fleet/m1") != nil {
		t.Fatalf("got %+v, %v, %v", signed, err, signed.Verify(public, "fleet/m1"))
	}
	change := func(do func(*AgentUpgrade)) AgentUpgrade {
		changed := signed
		changed.Checksums = maps.Clone(signed.Checksums)
		do(&changed)
		return changed
	}
	for name, err := range map[string]error{
		"another machine":      signed.Verify(public, "fleet/m2"),
		"another key":          signed.Verify(other, "fleet/m1"),
		"not signed":           u.Verify(public, "fleet/m1"),
		"another sequence":     change(func(u *AgentUpgrade) { u.Sequence = 8 }).Verify(public, "fleet/m1"),
		"another generation":   change(func(u *AgentUpgrade) { u.Generation = 3 }).Verify(public, "fleet/m1"),
		"another checksum":     change(func(u *AgentUpgrade) { u.Checksums["amd64"] = "bb" }).Verify(public, "fleet/m1"),
		"another architecture": change(func(u *AgentUpgrade) { u.Checksums["s390x"] = "cc" }).Verify(public, "fleet/m1"),
		"two values as one": change(func(u *AgentUpgrade) {
			u.Checksums = map[string]string{"amd64": "aa\"\n\"arm64\" \"bb"}
		}).Verify(public, "fleet/m1"),
	} {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A signature of a plan is none of an upgrade.
	plan, err := Sign(private, "aa", "fleet/m1", 7)
	if err != nil {
		t.Fatal(err)
	}
	if asUpgrade, err := DecodeUpgrade(plan); err == nil && asUpgrade.Verify(public, "fleet/m1") == nil {
		t.Error("the signature of a plan passes")
	}
	if _, err := DecodeUpgrade([]byte("no JSON")); err == nil {
		t.Error("nonsense passes")
	}
}

// TestAgentStatusIsKept shows that reports of plans leave the status of the agent as it is.
func TestAgentStatusIsKept(t *testing.T) {
	data := SecretData{}
	agent := AgentStatus{Version: "v1.2.3", Generation: 2, Phase: UpgradeDone}
	if err := (Status{Agent: &agent}).WriteTo(data); err != nil {
		t.Fatal(err)
	}
	status, err := DecodeStatus(data)
	if err != nil {
		t.Fatal(err)
	}
	status.AppliedChecksum = "aa"
	if err := status.WriteTo(data); err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeStatus(data); err != nil || cmp.Diff(&agent, got.Agent) != "" {
		t.Errorf("got %+v, %v", got.Agent, err)
	}
}
