package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// instructionsAfterInstall are the names of a plan's instructions but the first.
func instructionsAfterInstall(plan plans.Plan) string {
	var names []string
	for _, i := range plan.Instructions[1:] {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// awaitTask waits for a plan of a machine whose instruction beside install is the named one; the agent succeeds with others before.
func awaitTask(t *testing.T, m *testenv.FakeMachine, checksum *string, name string) (plan plans.Plan) {
	t.Helper()
	for range 5 {
		plan, *checksum = m.AwaitPlan(*checksum)
		got := instructionsAfterInstall(plan)
		if got == name {
			return plan
		}
		if got != "" {
			t.Fatalf("%s: the plan has the instructions %q, want %q", m.Name, got, name)
		}
		m.Apply(*checksum)
	}
	t.Fatalf("%s: no plan has the instruction %q", m.Name, name)
	return plan
}

// doTask is awaitTask, with an agent that succeeds.
func doTask(t *testing.T, m *testenv.FakeMachine, checksum *string, name string) plans.Plan {
	t.Helper()
	plan := awaitTask(t, m, checksum, name)
	m.Take()
	m.Succeed()
	return plan
}

// TestEncryptionKeyRotation: the leader rotates the key, then both servers restart, one at a time, and check it.
func TestEncryptionKeyRotation(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "keys", map[string]any{"secrets-encryption": true})
	leader := r.Register("keys1", "192.0.2.11", "etcd", "control-plane", "worker")
	_, first := leader.AwaitPlan("")
	leader.Take()
	leader.Succeed()
	controlPlane := r.ControlPlane()
	testenv.Condition(t, env, controlPlane, rkev1.BootstrappedCondition, metav1.ConditionTrue, "")
	other := r.Register("keys2", "192.0.2.12", "control-plane")
	_, second := other.AwaitPlan("")
	other.Take()
	other.Succeed()

	ask := func(generation int64) {
		testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.RotateEncryptionKeys = &rkev1.RotateEncryptionKeys{Generation: generation}
		})
	}
	reports := func(generation int64, phase string) {
		t.Helper()
		testenv.Until(t, "the status to say "+phase, func() error {
			env.Get(t, controlPlane.Namespace, controlPlane.Name, controlPlane)
			s := controlPlane.Status
			if s.RotateEncryptionKeys == nil || s.RotateEncryptionKeys.Generation != generation || s.RotateEncryptionKeysPhase != phase ||
				s.RotateEncryptionKeysLeader != leader.Name {
				return fmt.Errorf("it says %+v, %q, %q", s.RotateEncryptionKeys, s.RotateEncryptionKeysPhase, s.RotateEncryptionKeysLeader)
			}
			return nil
		})
	}
	ask(3)
	awaitTask(t, leader, &first, "rotate-encryption-keys")
	reports(3, "Rotate")
	leader.Take()
	leader.Succeed()

	// The servers restart one after the other; the one that has etcd first.
	doTask(t, leader, &first, "operation-restart")
	reports(3, "PostRotateRestart")
	doTask(t, leader, &first, "")
	doTask(t, other, &second, "operation-restart")
	verify := doTask(t, leader, &first, "verify-encryption-keys")
	if args := verify.Instructions[1].Args; !slices.Contains(args, "verify") || !slices.Contains(args, "https://127.0.0.1:6443") {
		t.Errorf("it runs %q", args)
	}
	doTask(t, other, &second, "verify-encryption-keys")
	reports(3, "Done")
	op := &operationv1.EncryptionKeyRotation{}
	key := client.ObjectKey{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name + "-rotate-encryption-keys-3"}
	testenv.Until(t, "the operation to have succeeded", func() error {
		if err := env.Client.Get(t.Context(), key, op); err != nil ||
			op.Status.Phase != operationv1.PhaseSucceeded || op.Status.Leader != leader.Name {
			return fmt.Errorf("%w: %+v", err, op.Status)
		}
		return nil
	})
	doTask(t, leader, &first, "")
	doTask(t, other, &second, "")

	// A rotation that fails on the leader ends; nothing restarts, and the Cluster is not paused.
	ask(4)
	awaitTask(t, leader, &first, "rotate-encryption-keys")
	leader.Take()
	leader.Fail()
	reports(4, "Failed")
	doTask(t, leader, &first, "")
	if plans.Checksum(other.Secret().Data[plans.KeyPlan]) != second {
		t.Error("the other server has another plan")
	}
	env.Get(t, r.Cluster.Namespace, r.Cluster.Name, r.Cluster)
	if r.Cluster.Spec.RKEConfig.RotateEncryptionKeys.Generation != 4 {
		t.Error("the generation was changed")
	}
}
