//go:build e2e && full

package pools

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestPlainObjects makes a cluster from Cluster API's objects alone, without a provisioning Cluster: the hub is a control plane and a
// bootstrap provider among others.
func TestPlainObjects(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: "plain"}
	before := shared.Settled(t, namespace)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}

	suite.Step(t, "three servers and two workers come up, although the hub is killed meanwhile", func(t *testing.T) {
		apply(t, "plain.yaml", key, "SERVERS", "3", "WORKERS", "2")
		waitFor(t, "there is a host", 2*time.Minute, func(context.Context) (bool, string) { return len(shared.Hosts()) > 0, "there is none" })
		shared.RestartHub(t)
		waitFor(t, "the Cluster is Available", 15*time.Minute, func(ctx context.Context) (bool, string) {
			if err := shared.Hub.Get(ctx, key, cluster); err != nil {
				return false, err.Error()
			}
			return conditions.IsTrue(cluster, clusterv1.AvailableCondition), conditions.GetMessage(cluster, clusterv1.AvailableCondition)
		})
		waitNodes(t, key, 3, 2, 5*time.Minute)
		checkMembers(t, key, 3)
	})
	suite.Step(t, "nothing is written once all is as it should be", func(t *testing.T) {
		shared.WaitQuiet(t, 20*time.Second, 5*time.Minute)
		shared.NoWrites(t, time.Minute)
	})
	suite.Step(t, "a MachineDeployment is scaled", func(t *testing.T) {
		workers := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-workers"}}
		change(t, workers, `{"spec": {"replicas": 1}}`)
		waitNodes(t, key, 3, 1, 5*time.Minute)
	})
	suite.Step(t, "a deleted Cluster leaves only what the user applied beside it", func(t *testing.T) {
		suite.Must(t, shared.Hub.Delete(ctx, cluster))
		shared.RestartHub(t)
		waitFor(t, "the Cluster is gone", 5*time.Minute, func(ctx context.Context) (bool, string) {
			err := shared.Hub.Get(ctx, key, cluster)
			return client.IgnoreNotFound(err) == nil && err != nil, conditions.GetMessage(cluster, clusterv1.DeletingCondition)
		})
		now, err := shared.Inventory(ctx)
		suite.Must(t, err)
		for name := range now {
			if _, ok := before[name]; !ok {
				t.Log("left:", name)
			}
		}
		if hosts := shared.Hosts(); len(hosts) > 0 {
			t.Errorf("%d hosts are left", len(hosts))
		}
	})
}
