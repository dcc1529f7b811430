package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/plans"
)

// TestAgentUpgradeProtocol has the real agent report its version through the gateway, accept the signature of this hub, and refuse what it
// cannot do: it is run by a test, and not by a unit that could roll back. Upgrades on machines are in e2e/scenarios/agent.
func TestAgentUpgradeProtocol(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	signer, err := signing.Ensure(t.Context(), e.client, e.system)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, e, "upgrade-1")
	a.deliver(plans.Plan{Instructions: []plans.Instruction{shell("first", "true")}})
	// An older hub asks for nothing, and would refuse a report with a key that it does not know.
	if got := a.until(plans.StateSucceeded); got.Agent != nil {
		t.Errorf("the agent reports %+v without being asked", got.Agent)
	}
	program, err := os.ReadFile(a.path("system-agent"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	request := func(generation int64, checksum string) {
		t.Helper()
		a.change(func(secret *corev1.Secret) {
			u := plans.AgentUpgrade{Generation: generation, Checksums: map[string]string{runtime.GOARCH: checksum}}
			raw, err := signer.SignUpgrade(u, secret.Data[plans.KeyAgentUpgrade], a.key.String())
			if err != nil {
				t.Fatal(err)
			}
			secret.Data[plans.KeyAgentUpgrade] = raw
		})
	}
	await := func(generation int64, phase plans.UpgradePhase, text string) {
		t.Helper()
		eventually(t, "the agent to report "+string(phase), func() error {
			got := a.status().Agent
			if got == nil || got.Version != "dev" || got.Generation != generation || got.Phase != phase || !strings.Contains(got.Message, text) {
				return fmt.Errorf("it reports %+v", got)
			}
			return nil
		})
	}
	a.change(func(secret *corev1.Secret) { secret.Data[plans.KeyAgentUpgrade] = []byte(`{"generation":1}`) })
	await(0, plans.UpgradeNone, "")
	request(1, hex.EncodeToString(sum[:]))
	await(1, plans.UpgradeDone, "")
	before := a.secret().Data[plans.KeyAgentUpgrade]
	request(2, strings.Repeat("a", 64))
	await(2, plans.UpgradeRefused, "not run by a systemd unit")
	a.change(func(secret *corev1.Secret) {
		secret.Data[plans.KeyAgentUpgrade] = []byte(`{"generation":3,"checksums":{"amd64":"aa","arm64":"aa"}}`)
	})
	await(3, plans.UpgradeRefused, "invalid signature")
	// The agent restarts, and finds the first request again: it has been done.
	a.end(syscall.SIGTERM)
	a.change(func(secret *corev1.Secret) { secret.Data[plans.KeyAgentUpgrade] = before })
	a.start()
	await(1, plans.UpgradeDone, "")
	a.deliver(plans.Plan{Instructions: []plans.Instruction{shell("second", "true")}})
	if got := a.until(plans.StateSucceeded); got.Agent == nil || got.Agent.Phase != plans.UpgradeDone {
		t.Errorf("the report of a plan changes that of the agent to %+v", got.Agent)
	}
}
