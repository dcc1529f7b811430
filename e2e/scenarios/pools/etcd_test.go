//go:build e2e && full

package pools

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestEtcdPool takes the servers of a cluster from three to one, replaces the one, and back to three, with the same data all the time. The
// hub is killed in the middle of each of these.
func TestEtcdPool(t *testing.T) { etcdPool(t, lab.K3s, "etcd") }

// TestEtcdPoolRKE2 does so with a cluster of RKE2.
func TestEtcdPoolRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	etcdPool(t, lab.RKE2, "etcdr")
}

func etcdPool(t *testing.T, d lab.Distribution, cluster string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: cluster}
	before := shared.Settled(t, namespace)
	servers := func(quantity int32) {
		changePool(t, key, "servers", func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To(quantity) })
		time.Sleep(2 * time.Second) // into the middle of it
		shared.RestartHub(t)
		waitNodes(t, key, int(quantity), 1, 15*time.Minute)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		checkMembers(t, key, int(quantity))
		checkData(t, key)
	}

	suite.Step(t, "three servers and a worker come up", func(t *testing.T) {
		apply(t, "etcd.yaml", key, "VERSION", d.Version)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, 3, 1, 5*time.Minute)
		checkMembers(t, key, 3)
		writeData(t, key)
	})
	suite.Step(t, "three servers become one", func(*testing.T) { servers(1) })
	suite.Step(t, "a change of the template's content replaces the one server", func(t *testing.T) {
		old, err := machinesOf(ctx, key, inPool("servers"))
		suite.Must(t, err)
		template := &labv1.LabMachineTemplate{}
		template.Namespace, template.Name = key.Namespace, key.Name
		change(t, template, `{"spec": {"template": {"spec": {"tags": {"generation": "2"}}}}}`)
		waitFor(t, "another server has taken its place", 15*time.Minute, func(ctx context.Context) (bool, string) {
			now, err := machinesOf(ctx, key, inPool("servers"))
			return err == nil && len(now) == 1 && now[0].Name != old[0].Name, "it has not"
		})
		waitNodes(t, key, 1, 1, 10*time.Minute)
		checkMembers(t, key, 1)
		checkData(t, key)
		checkTags(t, key, "generation=2\n")
	})
	suite.Step(t, "one server becomes three", func(*testing.T) { servers(3) })
	suite.Step(t, "a deleted Cluster takes everything with it", func(t *testing.T) { deleteCluster(t, poolsOf(t, key), before) })
}

// checkTags fails the test unless every host of a cluster has been made with these tags.
func checkTags(t *testing.T, key client.ObjectKey, want string) {
	t.Helper()
	machines, err := machinesOf(t.Context(), key)
	suite.Must(t, err)
	for _, m := range machines {
		host, err := shared.Host(m.Name)
		suite.Must(t, err)
		res, err := host.Exec(t.Context(), "cat", "/etc/lab/tags")
		if err != nil || res.Stdout != want {
			t.Errorf("host %s has tags %q, %v", m.Name, res.Stdout, err)
		}
	}
}
