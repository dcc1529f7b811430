package clusters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	operationplan "github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// TestRetryAfterPause: a retry of a failed plan that is due while the cluster is paused starts once it is unpaused. An operation that is
// created meanwhile says what it waits for.
func TestRetryAfterPause(t *testing.T) {
	t.Parallel()
	c := env.NewCluster(t, "paused", nil)
	m := c.Register("server", "127.0.0.2", "etcd", "control-plane", "worker")
	_, checksum := m.AwaitPlan("")
	capi := &clusterv1.Cluster{}
	env.Get(t, c.Cluster.Namespace, c.Cluster.Name, capi)
	testenv.Change(t, env, capi, func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = ptr.To(true) })
	testenv.Condition(t, env, c.ControlPlane(), clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason)
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: "paused"}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Cluster.Name}
	env.Create(t, op)
	m.Take()
	m.Fail()
	secret := m.Secret()
	due := fmt.Sprintf(`{"checksum":%q,"attempts":1,"failedAt":%q}`, checksum, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	testenv.Change(t, env, secret, func(s *corev1.Secret) { s.Annotations[rkev1.PlanRetryAnnotation] = due })
	m.Wait("the failure to be seen during the pause", func() error {
		machine := &clusterv1.Machine{}
		m.Read(m.Name, machine)
		if c := conditions.Get(machine, rkev1.PlanAppliedCondition); c == nil ||
			!strings.Contains(c.Message, "waiting for the Cluster to be unpaused") {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	if state := m.Secret().Data[plans.KeyPlanState]; string(state) != string(plans.StateFailed) {
		t.Fatalf("the plan of a paused cluster is %s", state)
	}
	testenv.Condition(t, env, op, operationv1.SucceededCondition, metav1.ConditionUnknown, operationplan.ReasonClusterPaused)

	env.Get(t, c.Cluster.Namespace, c.Cluster.Name, capi)
	testenv.Change(t, env, capi, func(cluster *clusterv1.Cluster) { cluster.Spec.Paused = ptr.To(false) })
	testenv.Condition(t, env, op, operationv1.SucceededCondition, metav1.ConditionUnknown, operationplan.ReasonWaitingForCluster)
	m.Wait("another attempt", func() error {
		if state := m.Secret().Data[plans.KeyPlanState]; string(state) != string(plans.StatePending) {
			return fmt.Errorf("the plan is %s", state)
		}
		return nil
	})
}
