//go:build e2e

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// poolsOf reads a Cluster of a user.
func poolsOf(t *testing.T, key client.ObjectKey) *provisioningv1.Cluster {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	return cluster
}

// changePool changes a pool of a Cluster as a user does with kubectl edit.
func changePool(t *testing.T, key client.ObjectKey, name string, edit func(*provisioningv1.RKEMachinePool)) {
	t.Helper()
	cluster := poolsOf(t, key)
	before := cluster.DeepCopy()
	for i := range cluster.Spec.RKEConfig.MachinePools {
		if pool := &cluster.Spec.RKEConfig.MachinePools[i]; pool.Name == name {
			edit(pool)
		}
	}
	suite.Must(t, shared.Hub.Patch(t.Context(), cluster, client.MergeFrom(before)))
}

// deploymentOf is the MachineDeployment of a pool.
func deploymentOf(t *testing.T, key client.ObjectKey, pool string) *clusterv1.MachineDeployment {
	t.Helper()
	list := &clusterv1.MachineDeploymentList{}
	suite.Must(t, shared.Hub.List(t.Context(), list, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}, inPool(pool)))
	if len(list.Items) != 1 {
		t.Fatalf("pool %s has %d MachineDeployments", pool, len(list.Items))
	}
	return &list.Items[0]
}

// deleteCluster deletes a Cluster and fails the test if anything is left of it, in the hub or as a host. before is what the hub held
// before the Cluster was made.
func deleteCluster(t *testing.T, cluster client.Object, before map[string]string) {
	t.Helper()
	suite.Must(t, shared.Hub.Delete(t.Context(), cluster))
	shared.RestartHub(t)
	// The template is the user's own, who takes it away himself.
	template := &labv1.LabMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.GetNamespace(), Name: cluster.GetName()}}
	suite.Must(t, shared.Hub.Delete(t.Context(), template))
	var left []string
	err := shared.WaitFor(t.Context(), "nothing of it is left", 5*time.Minute, func(ctx context.Context) (bool, string) {
		now, err := shared.Inventory(ctx)
		if err != nil {
			return false, err.Error()
		}
		left = left[:0]
		for name := range now {
			if _, ok := before[name]; !ok {
				left = append(left, name)
			}
		}
		for _, host := range shared.Hosts() {
			left = append(left, "host "+host.Name)
		}
		return len(left) == 0, fmt.Sprintf("%d things are left", len(left))
	})
	if err != nil {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}
