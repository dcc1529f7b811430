//go:build e2e && full

package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// TestOperationFaults kills the agent of a machine in each step of the operations that stop no cluster, and cancels them in one step after
// the other. Those of a restore have a test of their own.
func TestOperationFaults(t *testing.T) { operationFaults(t, lab.K3s, "steps") }

// TestOperationFaultsRKE2 does so with a cluster of RKE2.
func TestOperationFaultsRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	operationFaults(t, lab.RKE2, "stepsr")
}

func operationFaults(t *testing.T, d lab.Distribution, name string) {
	ctx := t.Context()
	c := faultyCluster{key: client.ObjectKey{Namespace: "fleet-default", Name: name}, d: d, host: shared.NewHost(t, name)}
	shared.MakeNamespace(t, c.key.Namespace)
	suite.Step(t, "a machine makes a cluster that encrypts its Secrets", func(t *testing.T) {
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, c.key, d.Version))
		command, _, err := shared.TokenCommand(ctx, shared.Hub, c.key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, c.host, command))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
		rotateEncryptionKeys(t, c.host, c.key)
	})
	for _, kind := range []struct {
		name string
		make func() operationv1.Operation
		// fewest is how many steps are seen at least; one may be over before anybody looks.
		fewest int
	}{
		{"snapshot", func() operationv1.Operation { return &operationv1.ETCDSnapshotSave{} }, 1},
		{"certificates", func() operationv1.Operation { return &operationv1.CertificateRotation{} }, 1},
		{"keys", func() operationv1.Operation { return &operationv1.EncryptionKeyRotation{} }, 2},
		{"tokens", func() operationv1.Operation { return &operationv1.TokenRotation{} }, 2},
	} {
		create := func(t *testing.T, suffix string) operationv1.Operation {
			t.Helper()
			op := kind.make()
			op.SetNamespace(c.key.Namespace)
			op.SetName(c.key.Name + "-" + kind.name + "-" + suffix)
			*op.CommonSpec() = suite.OperationSpec(c.key)
			suite.Must(t, shared.Hub.Create(ctx, op))
			return op
		}
		var steps []string
		suite.Step(t, kind.name+": the agent is killed in each step, and the operation succeeds", func(t *testing.T) {
			shared.WaitOperation(t, create(t, "agent-killed"), func(step string) {
				steps = append(steps, step)
				c.run(t, "systemctl kill --kill-whom=main --signal=SIGKILL rancher-system-agent")
			})
			if len(steps) < kind.fewest {
				t.Errorf("seen and killed in the steps %s alone", steps)
			}
			suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
		})
		suite.Step(t, kind.name+": it is canceled in each step, and the cluster goes on", func(t *testing.T) {
			for i, at := range steps {
				c.cancel(t, create(t, "canceled-in-"+strings.ToLower(at)), steps[:i])
			}
		})
		suite.Step(t, kind.name+": another one succeeds after that", func(t *testing.T) {
			shared.WaitOperation(t, create(t, "last"), nil)
			suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
		})
	}
	suite.Step(t, "the server has the tokens that the hub knows, and starts with them", func(t *testing.T) {
		hasToken(t, c.host, c.key)
		c.run(t, "systemctl restart "+d.ServerUnit)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 5*time.Minute))
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, c.key) })
}

// cancel cancels an operation in the first step that is seen after some. It ends as canceled, or as if nobody had asked where it had ended
// by then, and the cluster is Ready.
func (c *faultyCluster) cancel(t *testing.T, op operationv1.Operation, after []string) {
	t.Helper()
	last, canceled := "", false
	phase := shared.WaitOperationEnd(t, op, func(step string) {
		if last = step; !canceled && !slices.Contains(after, step) {
			canceled = true
			same := op.DeepCopyObject().(client.Object)
			suite.Must(t, shared.Hub.Patch(t.Context(), same, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cancel":true}}`))))
		}
	})
	if phase != operationv1.PhaseCanceled && phase != operationv1.PhaseSucceeded {
		t.Errorf("%s: canceled in %s, it has ended: %s", op.GetName(), last, text(t, op))
	}
	t.Logf("%s: %s in %s", op.GetName(), phase, last)
	suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, c.key, 10*time.Minute))
}
