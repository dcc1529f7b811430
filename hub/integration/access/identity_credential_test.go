package access

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/testenv"
)

const (
	idOne = "agent-one-0123456789"
	idTwo = "agent-two-0123456789"
)

// TestCredential: an agent gets a credential for a registration token, renews it without a write, and opens tunnels with it until its
// TunnelAgent is deleted.
func TestCredential(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	token, crt := newToken(t, management, managementv3.AgentsPurpose)
	first := requestCredential(t, token, idOne)
	if first.code != http.StatusOK || first.Cluster != management || !strings.HasPrefix(first.Agent, "agent-") {
		t.Fatalf("%d %s", first.code, first.text)
	}
	if left := time.Until(first.ExpiresAt); left < 23*time.Hour || left > 24*time.Hour ||
		first.RenewAfter.After(first.ExpiresAt.Add(-7*time.Hour)) {
		t.Errorf("it is good until %s and renewed after %s", first.ExpiresAt, first.RenewAfter)
	}
	agent := agentObject(t, first)
	if agent.Spec.ClusterName != management || agent.Spec.RegistrationTokenName != crt.Name || len(agent.OwnerReferences) != 1 {
		t.Errorf("the TunnelAgent is %+v of %+v", agent.Spec, agent.OwnerReferences)
	}
	for what, again := range map[string]answer{
		"the token again": requestCredential(t, token, idOne), "renewal": requestCredential(t, first.Credential,
			""), "renewal with id": requestCredential(t, first.Credential, idOne),
	} {
		if again.code != http.StatusOK || again.Agent != first.Agent {
			t.Errorf("%s: %d %s", what, again.code, again.text)
		}
	}
	if now := agentObject(t, first); now.ResourceVersion != agent.ResourceVersion {
		t.Error("a renewal writes")
	}
	if other := requestCredential(t, first.Credential, idTwo); other.code != http.StatusForbidden ||
		!strings.Contains(other.text, "another agent") {
		t.Errorf("a credential is renewed for another agent: %d %s", other.code, other.text)
	}
	if none := requestCredential(t, token, ""); none.code != http.StatusBadRequest || !strings.Contains(none.text, "agent: it is missing") {
		t.Errorf("without id: %d %s", none.code, none.text)
	}

	conns := []string{"/v3/connect", "/v3/connect/register"}
	for _, path := range conns {
		openTunnel(t, path, bearer(first.Credential))
	}
	conn := openTunnel(t, "/v3/connect", bearer(first.Credential))
	env.Delete(t, agent)
	began := time.Now()
	if err := awaitClosed(t, conn, time.Minute); strings.Contains(err.Error(), "i/o timeout") {
		t.Fatalf("the tunnel of a deleted agent stays open: %v", err)
	}
	t.Logf("the tunnel ended %s after the TunnelAgent was deleted", time.Since(began).Round(time.Millisecond))
	if code, text := openRefused(t, "/v3/connect", bearer(first.Credential)); code != http.StatusUnauthorized {
		t.Errorf("a tunnel with a revoked credential: %d %s", code, text)
	}
	if renewed := requestCredential(t, first.Credential, ""); renewed.code != http.StatusUnauthorized ||
		!strings.Contains(renewed.text, "revoked") {
		t.Errorf("renewal of a revoked credential: %d %s", renewed.code, renewed.text)
	}
	// With the same name comes another agent: the old credential stays worthless.
	if second := awaitCredential(t, token, idOne); second.code != http.StatusOK || second.Agent != first.Agent {
		t.Errorf("registering again: %d %s", second.code, second.text)
	}
	if renewed := requestCredential(t, first.Credential, ""); renewed.code != http.StatusUnauthorized {
		t.Errorf("the old credential after that: %d %s", renewed.code, renewed.text)
	}
}

// TestRegistrationTokens: purpose, expiry and number of uses are enforced.
func TestRegistrationTokens(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	machines, _ := newToken(t, management, managementv3.MachinesPurpose)
	if got := requestCredential(t, machines, idOne); got.code != http.StatusForbidden || !strings.Contains(got.text, "for machines only") {
		t.Errorf("a token for machines: %d %s", got.code, got.text)
	}
	if code, text := openRefused(t, "/v3/connect", map[string]string{"X-API-Tunnel-Token": machines}); code != http.StatusForbidden {
		t.Errorf("a tunnel with a token for machines: %d %s", code, text)
	}
	for _, wrong := range []string{"", "x", machines + "x", "aaaaaaaaaa." + strings.Repeat("a", 52), "a.b.c"} {
		if got := requestCredential(t, wrong, idOne); got.code != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", wrong, got.code, got.text)
		}
	}
	token, crt := newToken(t, management, managementv3.AgentsPurpose)
	env.Delete(t, crt)
	testenv.Until(t, "the token to be worth nothing", func() error {
		if got := requestCredential(t, token, idOne); got.code != http.StatusUnauthorized {
			return fmt.Errorf("%d %s", got.code, got.text)
		}
		return nil
	})
	if left := agentsOf(t.Context(), t, management); len(left) > 1 {
		t.Errorf("%d agents were registered", len(left))
	}
}

// TestMaxUses: of many concurrent agents no more get a credential than maxUses, each of them as often as it asks.
func TestMaxUses(t *testing.T) {
	t.Parallel()
	const allowed, come = 3, 8
	_, management := newCluster(t)
	token, crt := newToken(t, management, managementv3.AgentsPurpose,
		func(c *managementv3.ClusterRegistrationToken) { c.Spec.MaxUses = allowed })
	answers := make([]answer, come)
	id := func(i int) string { return fmt.Sprintf("agent-%d-0123456789", i) }
	var all sync.WaitGroup
	for i := range come {
		all.Go(func() { answers[i] = awaitCredential(t, token, id(i)) })
	}
	all.Wait()
	in := 0
	for i, got := range answers {
		switch {
		case got.code == http.StatusOK:
			in++
			if again := requestCredential(t, token, id(i)); again.code != http.StatusOK {
				t.Errorf("second request of agent %d: %d %s", i, again.code, again.text)
			}
		case got.code != http.StatusUnauthorized || !strings.Contains(got.text, "used up"):
			t.Errorf("agent %d: %d %s", i, got.code, got.text)
		}
	}
	if in != allowed || len(agentsOf(t.Context(), t, management)) != allowed {
		t.Errorf("%d agents are in, and there are %d TunnelAgents", in, len(agentsOf(t.Context(), t, management)))
	}
	testenv.Until(t, "the status to have the uses", func() error {
		env.Get(t, crt.Namespace, crt.Name, crt)
		if crt.Status.Uses != allowed {
			return fmt.Errorf("they are %d", crt.Status.Uses)
		}
		return nil
	})
}

// TestTokenHashIsImmutable: the ID and the hash of a token cannot be changed.
func TestTokenHashIsImmutable(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	_, crt := newToken(t, management, managementv3.AgentsPurpose)
	for _, tt := range []struct{ patch, err string }{
		{`{"spec":{"made":null}}`, "spec.made cannot be added or removed"},
		{`{"spec":{"made":{"id":"abcdefghij"}}}`, "spec.made cannot be changed"},
		{`{"spec":{"clusterName":"other"}}`, "spec.clusterName cannot be changed"},
	} {
		err := env.Client.Patch(t.Context(), crt.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(tt.patch)))
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %q", tt.patch, err, tt.err)
		}
	}
	bad := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "bad"}}
	bad.Spec.ClusterName = management
	bad.Spec.Purpose = "Everything"
	if err := env.Client.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "spec.purpose") {
		t.Errorf("a purpose that there is not: %v", err)
	}
}
