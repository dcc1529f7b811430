//go:build e2e

package pools

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestPools takes a cluster of two pools, made by the lab's provider from a provisioning Cluster, through its life: it comes up, loses a
// machine, grows and shrinks, and goes. The hub is killed in the middle of each of these.
func TestPools(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: "pools"}
	before := shared.Settled(t, namespace)

	suite.Step(t, "three servers and two workers come up, although the hub is killed meanwhile", func(t *testing.T) {
		apply(t, "pools.yaml", key)
		waitFor(t, "there is a host", 2*time.Minute, func(context.Context) (bool, string) { return len(shared.Hosts()) > 0, "there is none" })
		shared.RestartHub(t)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, 3, 2, 5*time.Minute)
		checkMembers(t, key, 3)
		writeData(t, key)
	})
	suite.Step(t, "a label that is taken from a pool is taken from its Nodes, and one that is added comes to them", func(t *testing.T) {
		checkLabel(t, key, "example.com/tier", "web")
		changePool(t, key, "workers", func(p *provisioningv1.RKEMachinePool) { p.Labels = map[string]string{"example.com/zone": "a"} })
		checkLabel(t, key, "example.com/zone", "a")
		checkLabel(t, key, "example.com/tier", "")
		waitNodes(t, key, 3, 2, 5*time.Minute)
	})
	suite.Step(t, "a worker that loses power is replaced by its health check", func(t *testing.T) {
		machines, err := machinesOf(ctx, key, inPool("workers"))
		suite.Must(t, err)
		lost := machines[0].Name
		host, err := shared.Host(lost)
		suite.Must(t, err)
		suite.Must(t, host.Kill())
		waitFor(t, "the Machine is deleted", 5*time.Minute, func(ctx context.Context) (bool, string) {
			machines, err := machinesOf(ctx, key, inPool("workers"))
			return err == nil && !names(machines)[lost], "Machine " + lost + " is still there"
		})
		shared.RestartHub(t)
		waitNodes(t, key, 3, 2, 10*time.Minute)
	})
	suite.Step(t, "a pool follows its quantity, and the quantity follows kubectl scale", func(t *testing.T) {
		changePool(t, key, "workers", func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To[int32](1) })
		waitNodes(t, key, 3, 1, 5*time.Minute)
		change(t, deploymentOf(t, key, "workers"), `{"spec": {"replicas": 2}}`)
		waitFor(t, "the pool's quantity is 2", 2*time.Minute, func(context.Context) (bool, string) {
			for _, pool := range poolsOf(t, key).Spec.RKEConfig.MachinePools {
				if pool.Name == "workers" {
					return ptr.Deref(pool.Quantity, 1) == 2, "it is not"
				}
			}
			return false, "the pool is gone"
		})
		waitNodes(t, key, 3, 2, 10*time.Minute)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "nothing is written once all is as it should be", func(t *testing.T) {
		shared.WaitQuiet(t, 20*time.Second, 5*time.Minute)
		shared.NoWrites(t, time.Minute)
	})
	suite.Step(t, "a deleted Cluster takes everything with it", func(t *testing.T) {
		checkData(t, key)
		deleteCluster(t, poolsOf(t, key), before)
	})
}

// checkLabel waits until the Nodes of the workers have a label, or do not have it where value is empty.
func checkLabel(t *testing.T, key client.ObjectKey, label, value string) {
	t.Helper()
	waitFor(t, "the workers have "+label+"="+value, 3*time.Minute, func(ctx context.Context) (bool, string) {
		machines, err := machinesOf(ctx, key, inPool("workers"))
		if err != nil {
			return false, err.Error()
		}
		nodes, err := nodesOf(ctx, key)
		if err != nil {
			return false, err.Error()
		}
		for _, m := range machines {
			if got := nodes[m.Spec.ProviderID].Labels[label]; got != value {
				return false, "Node of " + m.Name + " has " + label + "=" + got
			}
		}
		return true, ""
	})
}
