package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// upgradeCluster is a cluster with a server and two workers whose agents are the test.
type upgradeCluster struct {
	t       *testing.T
	cluster *provisioningv1.Cluster
	// server and workers are the plan Secrets.
	server  client.ObjectKey
	workers []client.ObjectKey
}

func newUpgradeCluster(t *testing.T) *upgradeCluster {
	t.Helper()
	u := &upgradeCluster{t: t, cluster: pooled(t, "agents")}
	testenv.Until(t, "the plan Secrets of all machines", func() error {
		var secrets corev1.SecretList
		if err := env.Client.List(t.Context(), &secrets, client.InNamespace(u.cluster.Namespace),
			client.MatchingLabels{rkev1.ClusterNameLabel: "agents"}); err != nil {
			return err
		}
		u.server, u.workers = client.ObjectKey{}, nil
		for i := range secrets.Items {
			switch secret := &secrets.Items[i]; {
			case secret.Type != rkev1.MachinePlanSecretType:
			case secret.Labels[rkev1.EtcdRoleLabel] == "true":
				u.server = client.ObjectKeyFromObject(secret)
			default:
				u.workers = append(u.workers, client.ObjectKeyFromObject(secret))
			}
		}
		if u.server.Name == "" || len(u.workers) != 2 {
			return fmt.Errorf("server %v, workers %v", u.server, u.workers)
		}
		return nil
	})
	return u
}

func (u *upgradeCluster) secret(key client.ObjectKey) *corev1.Secret {
	u.t.Helper()
	secret := &corev1.Secret{}
	env.Get(u.t, key.Namespace, key.Name, secret)
	return secret
}

// setGeneration requests an upgrade.
func (u *upgradeCluster) setGeneration(generation int64) {
	u.t.Helper()
	testenv.OnConflict(u.t, "setting the generation", func() error {
		env.Get(u.t, u.cluster.Namespace, u.cluster.Name, u.cluster)
		u.cluster.Spec.RedeploySystemAgentGeneration = generation
		return env.Client.Update(u.t.Context(), u.cluster)
	})
}

// report reports as an agent does.
func (u *upgradeCluster) report(key client.ObjectKey, status plans.AgentStatus) {
	u.t.Helper()
	testenv.OnConflict(u.t, "reporting", func() error {
		secret := u.secret(key)
		reported, err := plans.DecodeStatus(secret.Data)
		if err != nil {
			return err
		}
		reported.Agent = &status
		if err := reported.WriteTo(secret.Data); err != nil {
			return err
		}
		return env.Client.Update(u.t.Context(), secret)
	})
}

// awaitRequest waits until the hub has requested an upgrade from an agent, and verifies it as an agent does.
func (u *upgradeCluster) awaitRequest(key client.ObjectKey, generation int64, checksum string) plans.AgentUpgrade {
	u.t.Helper()
	signer, err := signing.Ensure(u.t.Context(), env.Client, "cattle-system")
	if err != nil {
		u.t.Fatal(err)
	}
	var got plans.AgentUpgrade
	testenv.Until(u.t, "an upgrade for "+key.Name, func() error {
		var err error
		if got, err = plans.DecodeUpgrade(u.secret(key).Data[plans.KeyAgentUpgrade]); err != nil {
			return err
		}
		if err := got.Verify(signer.Public(), key.String()); err != nil {
			return fmt.Errorf("requested is %+v: %w", got, err)
		}
		if got.Generation != generation || got.Checksums["amd64"] != checksum {
			return fmt.Errorf("requested is %+v, not generation %d of %s", got, generation, checksum)
		}
		return nil
	})
	return got
}

// awaitCluster waits for a reason of the Cluster's condition, and returns its message.
func (u *upgradeCluster) awaitCluster(reason string) string {
	u.t.Helper()
	text := ""
	testenv.Until(u.t, "the condition of the Cluster", func() error {
		env.Get(u.t, u.cluster.Namespace, u.cluster.Name, u.cluster)
		c := conditions.Get(u.cluster, provisioningv1.SystemAgentsUpgradedCondition)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		text = c.Message
		return nil
	})
	return text
}

// awaitMachine waits for a reason of the condition of RKEBootstrap and Machine.
func (u *upgradeCluster) awaitMachine(key client.ObjectKey, reason, text string) {
	u.t.Helper()
	bootstrap := &rkev1.RKEBootstrap{}
	testenv.Until(u.t, "the conditions of "+key.Name, func() error {
		env.Get(u.t, key.Namespace, rkev1.BootstrapOwner(u.secret(key)).Name, bootstrap)
		machine := &clusterv1.Machine{}
		for _, owner := range bootstrap.OwnerReferences {
			if owner.Kind == "Machine" {
				env.Get(u.t, key.Namespace, owner.Name, machine)
			}
		}
		for _, object := range []conditions.Getter{bootstrap, machine} {
			c := conditions.Get(object, rkev1.SystemAgentUpgradedCondition)
			if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
				return fmt.Errorf("it is %+v", c)
			}
		}
		return nil
	})
}

// TestAgentUpgrade takes the agents of a cluster through upgrades: servers first, one after the other, and stopped by a failure.
func TestAgentUpgrade(t *testing.T) {
	t.Parallel()
	agent := filepath.Join(env.Dir, "assets", "system-agent-amd64")
	if err := os.MkdirAll(filepath.Dir(agent), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(agent, []byte("the agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	checksum := tokens.Hash("the agent")
	u := newUpgradeCluster(t)
	all := append([]client.ObjectKey{u.server}, u.workers...)
	for _, key := range all {
		if got := u.secret(key).Data[plans.KeyAgentUpgrade]; len(got) != 0 {
			t.Errorf("without a generation the agent of %s is asked for %s", key.Name, got)
		}
	}

	u.setGeneration(1)
	for _, key := range all {
		testenv.Until(t, "the question to "+key.Name, func() error {
			if got := string(u.secret(key).Data[plans.KeyAgentUpgrade]); got != `{"generation":1}` {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		})
		u.awaitMachine(key, "NotReported", "install script")
	}
	u.awaitCluster("PartlyUpgraded") // when they have had their time to answer

	first := plans.AgentStatus{Version: "v1.0.0"}
	u.report(u.workers[0], first)
	request := u.awaitRequest(u.workers[0], 1, checksum) // the server may be none of Drover
	u.report(u.server, first)
	u.awaitRequest(u.server, 1, checksum)
	// Somebody else requests an upgrade: that is none of this hub.
	testenv.OnConflict(t, "forging", func() error {
		secret := u.secret(u.workers[1])
		secret.Data[plans.KeyAgentUpgrade] = []byte(`{"generation":9,"checksums":{"amd64":"aa"}}`)
		return env.Client.Update(t.Context(), secret)
	})
	u.report(u.workers[1], first)
	u.awaitMachine(u.workers[1], "Waiting", "etcd and control plane nodes")
	u.report(u.server, plans.AgentStatus{Version: "v1.1.0", Generation: 1, Phase: plans.UpgradeDone})
	u.awaitMachine(u.server, "Upgraded", "v1.1.0")
	u.awaitMachine(u.workers[1], "Waiting", "upgradeStrategy")
	u.report(u.workers[0], plans.AgentStatus{Version: "v1.0.0", Generation: 1, Phase: plans.UpgradeRolledBack, Message: "it has crashed"})
	u.awaitMachine(u.workers[0], "RolledBack", "it has crashed")
	text := u.awaitCluster("Paused")
	for _, want := range []string{"1 of 3 agents upgraded; rolled back: ", "; versions: v1.0.0 (2), v1.1.0 (1); paused because of failures"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Cluster says %q, want %q", text, want)
		}
	}

	before := []string{}
	for _, key := range all {
		before = append(before, u.secret(key).ResourceVersion)
	}
	testenv.OnConflict(t, "reconciling without a change", func() error {
		env.Get(t, u.cluster.Namespace, u.cluster.Name, u.cluster)
		u.cluster.Annotations["example.com/touched"] = "yes"
		return env.Client.Update(t.Context(), u.cluster)
	})
	u.setGeneration(2)
	u.awaitRequest(u.server, 2, checksum)
	after := []string{}
	for _, key := range all {
		after = append(after, u.secret(key).ResourceVersion)
	}
	if diff := cmp.Diff(before[1:], after[1:]); diff != "" {
		t.Errorf("Secrets were written although nothing has changed for them: %s", diff)
	}
	u.report(u.server, plans.AgentStatus{Version: "v1.1.0", Generation: 2, Phase: plans.UpgradeDone})
	// The workers are upgraded in the order of their names.
	for range u.workers {
		testenv.Until(t, "a worker", func() error {
			for _, key := range u.workers {
				requested, err := plans.DecodeUpgrade(u.secret(key).Data[plans.KeyAgentUpgrade])
				status, err2 := plans.DecodeStatus(u.secret(key).Data)
				if err == nil && err2 == nil && requested.Generation == 2 && status.Agent.Generation != 2 {
					if got := u.awaitRequest(key, 2, checksum); got.Sequence <= request.Sequence {
						t.Errorf("sequence %d after %d", got.Sequence, request.Sequence)
					}
					u.report(key, plans.AgentStatus{Version: "v1.1.0", Generation: 2, Phase: plans.UpgradeDone})
					return nil
				}
			}
			return fmt.Errorf("none is asked")
		})
	}
	if text := u.awaitCluster("Upgraded"); text != "3 of 3 agents upgraded; versions: v1.1.0 (3)" {
		t.Errorf("the Cluster says %q", text)
	}
}
