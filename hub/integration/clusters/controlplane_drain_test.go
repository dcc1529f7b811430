package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/plans"
)

const hook = "example.com/ready"

// kubelet creates the Node of a machine that has applied its plan.
func kubelet(t *testing.T, api *workload.Cluster, m *testenv.FakeMachine, voter bool) {
	t.Helper()
	machine := &clusterv1.Machine{}
	m.Read(m.Name, machine)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: map[string]string{rkev1.MachineUIDLabel: string(machine.UID)}}}
	node.Spec.ProviderID = "plane:///" + m.Name
	node.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if voter {
		node.Labels[rollout.EtcdRoleLabel] = "true"
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue})
	}
	api.SetNode(node)
}

// awaitReconciled waits until the condition Reconciled of a machine has a reason and a message with this prefix.
func awaitReconciled(m *testenv.FakeMachine, reason, message string) {
	m.T.Helper()
	m.Wait(m.Name+" to say "+reason+": "+message, func() error { return checkReconciled(m, reason, message) })
}

// checkReconciled returns an error unless the condition Reconciled of a machine has a reason and a message with this prefix.
func checkReconciled(m *testenv.FakeMachine, reason, message string) error {
	m.T.Helper()
	machine := &clusterv1.Machine{}
	m.Read(m.Name, machine)
	for _, c := range machine.Status.Conditions {
		if c.Type == rkev1.ReconciledCondition {
			if c.Reason != reason || !strings.HasPrefix(c.Message, message) {
				return fmt.Errorf("it says %s: %s", c.Reason, c.Message)
			}
			return nil
		}
	}
	return fmt.Errorf("it says nothing")
}

// TestDrain: before a change that affects workloads, workers are drained one after another, each once its hook allows it; a worker whose
// change fails blocks the next; and each Node is uncordoned after its change.
func TestDrain(t *testing.T) {
	t.Parallel()
	api := workload.Start()
	defer api.Stop()
	c := env.NewCluster(t, "drained", nil)
	kubeconfig, err := api.KubeconfigSecret(c.Cluster.Namespace, c.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	testenv.Change(t, env, c.Cluster, func(cluster *provisioningv1.Cluster) {
		cluster.Spec.RKEConfig.UpgradeStrategy.WorkerDrainOptions = rkev1.DrainOptions{Enabled: true,
			PreDrainHooks: []rkev1.DrainHook{{Annotation: hook}}}
	})
	server := c.Register("server", "127.0.0.2", "etcd", "control-plane")
	workers := []*testenv.FakeMachine{c.Register("one", "127.0.0.3", "worker"), c.Register("two", "127.0.0.4", "worker")}
	slices.SortFunc(workers, func(a, b *testenv.FakeMachine) int { return strings.Compare(a.Name, b.Name) })
	last := map[string]string{}
	for _, m := range append([]*testenv.FakeMachine{server}, workers...) {
		_, last[m.Name] = m.AwaitPlan("")
		m.Take()
		m.Succeed()
		kubelet(t, api, m, m == server)
	}
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")

	env.Get(t, c.Cluster.Namespace, c.Cluster.Name, c.Cluster)
	testenv.Change(t, env, c.Cluster, func(cluster *provisioningv1.Cluster) {
		cluster.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"kubelet-arg": []any{"max-pods=200"}}
	})
	server.AwaitPlan(last[server.Name])
	server.Take()
	server.Succeed()

	first, second := workers[0], workers[1]
	awaitReconciled(first, rollout.ReasonDraining,
		"Waiting for the Node to be drained before the change: waiting for the pre-drain hooks "+hook+" to answer")
	awaitReconciled(second, rollout.ReasonWaitingForOthers, "Waiting for other worker nodes: ")
	if !api.Node(first.Name).Spec.Unschedulable || api.Node(second.Name).Spec.Unschedulable {
		t.Error("not the one Node is cordoned that is drained")
	}
	answerHook(first)
	first.AwaitPlan(last[first.Name])
	first.Take()
	first.FailUntil("its failure to be shown", func() error { return checkReconciled(first, rollout.ReasonPlanFailed, "Attempt ") })
	awaitReconciled(second, rollout.ReasonWaitingForOthers, "Waiting for other worker nodes: ")

	// The hub retries it.
	first.Wait("another attempt", func() error {
		if state := first.Secret().Data[plans.KeyPlanState]; string(state) != string(plans.StatePending) {
			return fmt.Errorf("the plan is %s", state)
		}
		return nil
	})
	first.Take()
	first.Succeed()
	awaitUncordoned(api, first)
	answerHook(second)
	second.AwaitPlan(last[second.Name])
	second.Take()
	second.Succeed()
	awaitUncordoned(api, second)
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
}

// answerHook lets the drain of a machine continue once its hook was called.
func answerHook(m *testenv.FakeMachine) {
	m.T.Helper()
	m.Wait("the hook of "+m.Name+" to be asked", func() error {
		secret := m.Secret()
		asked := secret.Annotations[rkev1.PreDrainAnnotation]
		if asked == "" || asked != secret.Annotations[rkev1.DrainOptionsAnnotation] {
			return fmt.Errorf("the annotations are %v", secret.Annotations)
		}
		secret.Annotations[hook] = asked
		return env.Client.Update(m.T.Context(), secret)
	})
}

// awaitUncordoned waits until a Node is schedulable and no annotation of its drain is left.
func awaitUncordoned(api *workload.Cluster, m *testenv.FakeMachine) {
	m.T.Helper()
	m.Wait(m.Name+" to be uncordoned", func() error {
		for key, value := range m.Secret().Annotations {
			if strings.Contains(key, "drain") || key == hook || key == rkev1.UncordonAnnotation {
				return fmt.Errorf("%s is %q", key, value)
			}
		}
		if api.Node(m.Name).Spec.Unschedulable {
			return fmt.Errorf("the Node is cordoned")
		}
		return nil
	})
}
