package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/plans"
)

const (
	removeAnnotation  = "etcd.k3s.cattle.io/remove"
	removedAnnotation = "etcd.k3s.cattle.io/removed-node-name"
)

// startAPI starts the API server of the cluster. Machines that have applied a plan get Nodes with the status of voting etcd members.
func (c *capiCluster) startAPI() *workload.Cluster {
	c.t.Helper()
	api := workload.Start()
	c.t.Cleanup(api.Stop)
	kubeconfig, err := api.KubeconfigSecret(c.namespace, c.name)
	if err != nil {
		c.t.Fatal(err)
	}
	env.Create(c.t, kubeconfig)
	ctx := c.t.Context()
	go func() {
		for ctx.Err() == nil {
			c.runKubelets(ctx, api)
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return api
}

func (c *capiCluster) runKubelets(ctx context.Context, api *workload.Cluster) {
	var machines clusterv1.MachineList
	_ = env.Client.List(ctx, &machines, client.InNamespace(c.namespace))
	for _, machine := range machines.Items {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: c.namespace, Name: rkev1.PlanSecretName(machine.Name)}
		if !machine.DeletionTimestamp.IsZero() || api.Node(machine.Name) != nil || env.Client.Get(ctx, key, secret) != nil ||
			string(secret.Data[plans.KeyPlanState]) != string(plans.StateSucceeded) {
			continue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Name,
			Labels: map[string]string{rkev1.MachineUIDLabel: string(machine.UID), rollout.EtcdRoleLabel: "true"}}}
		node.Spec.ProviderID = "boot:///" + machine.Name
		node.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue}}
		api.SetNode(node)
	}
}

// newMembers creates the etcd machines of the cluster, and waits until each has its Node and its hook.
func (c *capiCluster) newMembers(names ...string) *workload.Cluster {
	c.t.Helper()
	api := c.startAPI()
	c.runAgents()
	for i, name := range names {
		c.machine(name, rkev1.Userdata{}, "etcd", "control-plane", "worker")
		c.awaitBootstrapData(name)
		c.provision(name, fmt.Sprintf("192.0.2.%d", i+1))
	}
	for _, name := range names {
		testenv.Until(c.t, name+" to be a member", func() error {
			machine := &clusterv1.Machine{}
			env.Get(c.t, c.namespace, name, machine)
			if !machine.Status.NodeRef.IsDefined() ||
				machine.Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook] != rkev1.RKEBootstrapCleanupPreTerminateOwner {
				return fmt.Errorf("Node %v, annotations %v, conditions %+v", machine.Status.NodeRef, machine.Annotations,
					c.bootstrap(name).Status.Conditions)
			}
			return nil
		})
	}
	return api
}

func (c *capiCluster) read(name string) *clusterv1.Machine {
	c.t.Helper()
	machine := &clusterv1.Machine{}
	env.Get(c.t, c.namespace, name, machine)
	return machine
}

// awaitRemovalRequest waits until etcd is asked to remove a member.
func awaitRemovalRequest(t *testing.T, api *workload.Cluster, name string) {
	t.Helper()
	testenv.Until(t, "the cluster to be asked to remove "+name, func() error {
		if node := api.Node(name); node == nil || node.Annotations[removeAnnotation] != "true" {
			return fmt.Errorf("the Node is %+v", node)
		}
		return nil
	})
}

// TestEtcdScaleDown deletes two of three members at once, and then the last one.
func TestEtcdScaleDown(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	api := c.newMembers("a", "b", "c")

	env.Delete(t, c.read("c"))
	awaitRemovalRequest(t, api, "c")
	testenv.Condition(t, env, c.read("c"), rkev1.EtcdMemberRemovedCondition, metav1.ConditionFalse, "Removing")
	env.Delete(t, c.read("b"))
	message := testenv.Condition(t, env, c.read("b"), rkev1.EtcdMemberRemovedCondition, metav1.ConditionFalse, rollout.ReasonWaitingForOthers)
	if !strings.Contains(message, "c") {
		t.Errorf("b waits without saying for whom: %q", message)
	}
	if node := api.Node("b"); node.Annotations[removeAnnotation] != "" {
		t.Error("two members are on their way out at the same time")
	}

	gone := func(name string) {
		t.Helper()
		env.Gone(t, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}})
	}
	reportRemoved(api, "c")
	gone("c")
	testenv.Condition(t, env, c.read("b"), rkev1.EtcdMemberRemovedCondition, metav1.ConditionFalse, "")
	awaitRemovalRequest(t, api, "b")
	reportRemoved(api, "b")
	gone("b")

	env.Delete(t, c.read("a"))
	message = testenv.Condition(t, env, c.read("a"), rkev1.EtcdMemberRemovedCondition, metav1.ConditionFalse, "LastMember")
	if !strings.Contains(message, "add one") || !strings.Contains(message, rkev1.EtcdForceRemoveAnnotation) {
		t.Errorf("the last member says %q", message)
	}
	if node := api.Node("a"); node.Annotations[removeAnnotation] != "" {
		t.Error("the last member is asked to go")
	}
	testenv.Change(t, env, c.read("a"), func(m *clusterv1.Machine) { m.Annotations[rkev1.EtcdForceRemoveAnnotation] = "true" })
	gone("a")
}

// reportRemoved writes the annotation with which k3s confirms the removal of a member.
func reportRemoved(api *workload.Cluster, name string) {
	api.ChangeNode(name, func(node *corev1.Node) {
		node.Annotations[removedAnnotation] = name + "-12345678"
		node.Status.Conditions = node.Status.Conditions[:1]
	})
}

// TestEtcdClusterDeletion: with the Cluster, all members are deleted without being removed from etcd.
func TestEtcdClusterDeletion(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	c.newMembers("a")
	env.Delete(t, c.capi())
	env.Gone(t, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}})
}

// TestEtcdDeletionBeforeBootstrap deletes a member of a cluster that was never bootstrapped.
func TestEtcdDeletionBeforeBootstrap(t *testing.T) {
	t.Parallel()
	c := newCAPICluster(t)
	c.machine("a", rkev1.Userdata{}, "etcd", "control-plane", "worker")
	testenv.Until(t, "the hook", func() error {
		if c.read("a").Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook] == "" {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
	env.Delete(t, c.read("a"))
	env.Gone(t, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a"}})
}
