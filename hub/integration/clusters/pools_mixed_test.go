package clusters

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestPoolsAndCustomMachines: custom machines can join a cluster with pools, and do not count for the pools.
func TestPoolsAndCustomMachines(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "mixed")
	headers, err := json.Marshal(map[string][]string{rkev1.HeaderID: {"own"}, rkev1.HeaderRoleWorker: {"true"}})
	if err != nil {
		t.Fatal(err)
	}
	management := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	testenv.Until(t, "the management namespace", func() error {
		return env.Client.Get(t.Context(), client.ObjectKey{Name: management}, &corev1.Namespace{})
	})
	name := rkev1.MachineRequestName("own")
	env.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: name},
		Type: rkev1.MachineRequestSecretType, Data: map[string][]byte{rkev1.MachineRequestDataKey: headers}})
	machine := &clusterv1.Machine{}
	testenv.Until(t, "the machine that registered itself", func() error {
		return env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: name}, machine)
	})
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].Quantity = ptr.To[int32](0) })
	testenv.Until(t, "the pool to be empty", func() error {
		if n := ptr.Deref(deployment(t, cluster, "workers").Status.Replicas, -1); n != 0 {
			return fmt.Errorf("it has %d machines", n)
		}
		return nil
	})
	env.Get(t, cluster.Namespace, name, machine)
	if !machine.DeletionTimestamp.IsZero() {
		t.Error("the machine that registered itself was removed with the pool's")
	}
	env.Delete(t, cluster)
	env.Gone(t, cluster)
}

// TestDeletionWithoutClusterAPI: a Cluster whose Cluster API Cluster was deleted by force is deleted with everything that Cluster API does
// not delete any more.
func TestDeletionWithoutClusterAPI(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "lost")
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
	})
	testenv.Condition(t, env, cluster, clusterv1.PausedCondition, metav1.ConditionTrue, "")
	capi := &clusterv1.Cluster{}
	env.Get(t, cluster.Namespace, "lost", capi)
	testenv.Change(t, env, capi, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	env.Delete(t, capi)
	testenv.Until(t, "the Cluster API Cluster to be taken away", func() error {
		env.Get(t, cluster.Namespace, "lost", capi)
		before := capi.DeepCopy()
		capi.Finalizers = nil
		return env.Client.Patch(t.Context(), capi, client.MergeFrom(before))
	})
	env.Delete(t, cluster)
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
	env.Gone(t, cluster)
	env.Left(t, cluster.Namespace, "TestMachineTemplate machines")
}
