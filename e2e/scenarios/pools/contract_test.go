//go:build e2e

package pools

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestTheProviderKeepsTheContract drives the lab's provider with nothing but Cluster API, so that what the other scenarios build on is
// known to hold: what is said of it here is said of every infrastructure provider.
func TestTheProviderKeepsTheContract(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: "contract"}
	shared.MakeNamespace(t, namespace)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	labCluster := &labv1.LabCluster{}
	machine := &labv1.LabMachine{}

	suite.Step(t, "a paused LabCluster is left alone, and says so", func(t *testing.T) {
		apply(t, "contract.yaml", key)
		waitFor(t, "the LabCluster is paused", 2*time.Minute, func(ctx context.Context) (bool, string) {
			if err := shared.Hub.Get(ctx, key, labCluster); err != nil {
				return false, err.Error()
			}
			return conditions.IsTrue(labCluster, clusterv1.PausedCondition), "it is not"
		})
		if ptr.Deref(labCluster.Status.Initialization.Provisioned, false) {
			t.Error("it was provisioned all the same")
		}
	})
	suite.Step(t, "the infrastructure is provisioned, with an endpoint and failure domains", func(t *testing.T) {
		change(t, labCluster, `{"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}`)
		waitFor(t, "Cluster API sees the infrastructure", 2*time.Minute, func(ctx context.Context) (bool, string) {
			err := shared.Hub.Get(ctx, key, cluster)
			return err == nil && ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false), "it does not"
		})
		if cluster.Spec.ControlPlaneEndpoint.Host != shared.HubIP().String() || len(cluster.Status.FailureDomains) != 2 {
			t.Errorf("endpoint %+v, failure domains %+v", cluster.Spec.ControlPlaneEndpoint, cluster.Status.FailureDomains)
		}
	})
	suite.Step(t, "a host boots with the bootstrap data, also when the provider is killed meanwhile", func(t *testing.T) {
		waitFor(t, "there is a host", 2*time.Minute, func(context.Context) (bool, string) { return len(shared.Hosts()) > 0, "there is none" })
		suite.Must(t, shared.KillProvider())
		suite.Must(t, shared.StartProvider(ctx, shared.Hub))
		waitFor(t, "the LabMachine is Ready", 2*time.Minute, func(ctx context.Context) (bool, string) {
			machines := &labv1.LabMachineList{}
			if err := shared.Hub.List(ctx, machines, client.InNamespace(namespace)); err != nil || len(machines.Items) != 1 {
				return false, "there is none"
			}
			*machine = machines.Items[0]
			return conditions.IsTrue(machine, labv1.ReadyCondition), conditions.GetMessage(machine, labv1.ReadyCondition)
		})
		host, err := shared.Host(machine.Name)
		suite.Must(t, err)
		res, err := host.Exec(ctx, "cat", "/etc/lab-test", "/etc/lab/tags")
		if err != nil || res.Stdout != "writtensize=small\n" {
			t.Errorf("on the host: %v %+v", err, res)
		}
	})
	suite.Step(t, "Cluster API sees address, provider ID and failure domain", func(t *testing.T) {
		waitFor(t, "the Machine has them", 2*time.Minute, func(ctx context.Context) (bool, string) {
			found, err := machinesOf(ctx, key)
			if err != nil || len(found) != 1 {
				return false, "there is no Machine"
			}
			m := found[0]
			return m.Spec.ProviderID == "lab://"+shared.Name+"/"+machine.Name && m.Status.FailureDomain == "west" && len(m.Status.Addresses) == 2,
				"it has not"
		})
	})
	suite.Step(t, "a host that loses power is seen to be off", func(t *testing.T) {
		host, err := shared.Host(machine.Name)
		suite.Must(t, err)
		suite.Must(t, host.Kill())
		waitFor(t, "the LabMachine is not Ready", 2*time.Minute, func(ctx context.Context) (bool, string) {
			err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(machine), machine)
			return err == nil && conditions.GetReason(machine, labv1.ReadyCondition) == labv1.HostOffReason, "it still is"
		})
	})
	suite.Step(t, "nothing is left after a deletion", func(t *testing.T) {
		suite.Must(t, shared.Hub.Delete(ctx, cluster))
		waitFor(t, "the Cluster is gone", 2*time.Minute, func(ctx context.Context) (bool, string) {
			err := shared.Hub.Get(ctx, key, cluster)
			return client.IgnoreNotFound(err) == nil && err != nil, conditions.GetMessage(cluster, clusterv1.DeletingCondition)
		})
		if hosts := shared.Hosts(); len(hosts) > 0 {
			t.Errorf("%d hosts are left", len(hosts))
		}
	})
}

// waitFor waits and fails the test if what is waited for does not come.
func waitFor(t *testing.T, what string, limit time.Duration, check func(ctx context.Context) (done bool, missing string)) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), what, limit, check))
}
