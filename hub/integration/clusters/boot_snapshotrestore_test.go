package clusters

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/plans"
)

// restoredCluster is a cluster of two servers and a worker whose agents are played.
type restoredCluster struct {
	*testenv.FakeCluster
	api                   *workload.Cluster
	first, second, worker *testenv.FakeMachine
	last                  map[string]string
}

// take waits for the next plan of a machine, and returns the names of its instructions.
func (c *restoredCluster) take(m *testenv.FakeMachine) (plan plans.Plan, names string) {
	c.T.Helper()
	plan, c.last[m.Name] = m.AwaitPlan(c.last[m.Name])
	var all []string
	for _, i := range plan.Instructions {
		all = append(all, i.Name)
	}
	m.Take()
	return plan, strings.Join(all, " ")
}

// do has machines do what they are given next, which has to be these instructions.
func (c *restoredCluster) do(want string, machines ...*testenv.FakeMachine) {
	c.T.Helper()
	for _, m := range machines {
		if _, got := c.take(m); got != want {
			c.T.Fatalf("%s runs %q, want %q", m.Name, got, want)
		}
		m.Succeed()
	}
}

func (c *restoredCluster) restore(name string) {
	c.T.Helper()
	op := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: name}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: c.Cluster.Name}
	op.Spec.TTL, op.Spec.Args.Name = -1, "snapshot"
	env.Create(c.T, op)
}

// setMissing says of the snapshot since when it is not listed; nil for one that is.
func (c *restoredCluster) setMissing(since *metav1.Time) {
	c.T.Helper()
	snapshot := &rkev1.ETCDSnapshot{}
	c.Read("snapshot", snapshot)
	base := snapshot.DeepCopy()
	snapshot.Status = rkev1.ETCDSnapshotStatus{Missing: since != nil, MissingSince: since}
	if err := env.Client.Status().Patch(c.T.Context(), snapshot, client.MergeFrom(base)); err != nil {
		c.T.Fatal(err)
	}
}

// ends waits until a restore has ended, and returns its message.
func (c *restoredCluster) ends(name string, phase operationv1.Phase) string {
	c.T.Helper()
	op := &operationv1.ETCDSnapshotRestore{}
	c.Wait(fmt.Sprintf("ETCDSnapshotRestore %s to be %s", name, phase), func() error {
		if err := env.Client.Get(c.T.Context(), client.ObjectKey{Namespace: c.Cluster.Namespace, Name: name}, op); err != nil {
			return err
		}
		if op.Status.Phase != phase {
			return fmt.Errorf("it is %q in step %q: %+v", op.Status.Phase, op.Status.Step, op.Status.Conditions)
		}
		return nil
	})
	return conditions.Get(op, operationv1.SucceededCondition).Message
}

func (c *restoredCluster) isInit(m *testenv.FakeMachine) bool {
	return m.Secret().Labels[rkev1.InitNodeLabel] == "true"
}

// startAll does the steps after the restore itself.
func (c *restoredCluster) startAll() {
	c.T.Helper()
	c.do("install start", c.second)
	c.do("forget install start", c.first, c.worker)
}

func newRestoredCluster(t *testing.T) *restoredCluster {
	c := &restoredCluster{FakeCluster: env.NewCluster(t, "restored", nil), api: workload.Start(), last: map[string]string{}}
	t.Cleanup(c.api.Stop)
	kubeconfig, err := c.api.KubeconfigSecret(c.Cluster.Namespace, c.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	c.first = c.Register("a", "192.0.2.31", "etcd", "control-plane")
	c.Wait("the init node", func() error {
		if !c.isInit(c.first) {
			return errors.New("it was not chosen yet")
		}
		return nil
	})
	c.second, c.worker = c.Register("b", "192.0.2.32", "etcd", "control-plane"), c.Register("w", "192.0.2.33", "worker")
	for _, m := range []*testenv.FakeMachine{c.first, c.second, c.worker} {
		c.do("install", m)
		kubelet(t, c.api, m, m != c.worker)
	}
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	snapshot := &rkev1.ETCDSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: "snapshot", Labels: map[string]string{
			rkev1.ClusterNameLabel: c.Cluster.Name, rkev1.MachineNameLabel: c.second.Name}},
		Spec:         rkev1.ETCDSnapshotSpec{ClusterName: c.Cluster.Name},
		SnapshotFile: rkev1.ETCDSnapshotFile{Name: "s", Location: "file:///snapshots/s", Size: 7, Status: "successful"},
	}
	env.Create(t, snapshot)
	return c
}

// TestETCDSnapshotRestore: a snapshot is restored on the machine that has it, which all others join then; a failure before machines are
// stopped changes nothing, and after one later nothing is started until another restore has succeeded.
func TestETCDSnapshotRestore(t *testing.T) {
	t.Parallel()
	c := newRestoredCluster(t)
	if !c.isInit(c.first) || c.isInit(c.second) {
		t.Fatal("not the first server is the init node")
	}

	// A file that is not listed yet is waited for.
	c.setMissing(&metav1.Time{Time: time.Now()})
	c.restore("checked")
	c.Wait("the restore to wait for the snapshot to be listed", func() error {
		op := &operationv1.ETCDSnapshotRestore{}
		if c.Read("checked", op); conditions.GetReason(op, operationv1.SucceededCondition) != operation.ReasonWaitingForSnapshot {
			return fmt.Errorf("it says %+v", op.Status.Conditions)
		}
		return nil
	})
	c.setMissing(nil)
	c.do("install ping", c.first)
	plan, got := c.take(c.second)
	if args := strings.Join(plan.Instructions[len(plan.Instructions)-1].Args, " "); got != "install etcd-snapshot-check" ||
		!strings.Contains(args, "/snapshots/s 7") {
		t.Fatalf("the check is %q with %s", got, args)
	}
	c.second.Fail()
	if text := c.ends("checked", operationv1.PhaseFailed); !strings.Contains(text, "Nothing was stopped") {
		t.Errorf("it says %q", text)
	}
	c.do("install", c.first, c.second)

	c.restore("failed")
	c.do("install ping", c.first)
	c.do("install etcd-snapshot-check", c.second)
	c.do("stop", c.first, c.second, c.worker)
	if plan, got = c.take(c.second); got != "install etcd-snapshot-restore" ||
		!slices.Contains(plan.Instructions[1].Args, "--cluster-reset-restore-path=/snapshots/s") {
		t.Fatalf("the restore is %q: %+v", got, plan.Instructions)
	}
	machine := &clusterv1.Machine{}
	c.Wait("the restored server to be the init node, and the Machines to be left alone", func() error {
		if c.isInit(c.first) || !c.isInit(c.second) {
			return errors.New("another one is the init node")
		}
		if c.Read(c.worker.Name, machine); machine.Annotations[rkev1.RestoringAnnotation] == "" ||
			machine.Annotations[clusterv1.MachineSkipRemediationAnnotation] == "" {
			return fmt.Errorf("the Machine has the annotations %v", machine.Annotations)
		}
		return nil
	})
	c.second.Fail()
	if text := c.ends("failed", operationv1.PhaseFailed); !strings.Contains(text, "another ETCDSnapshotRestore") {
		t.Errorf("it says %q", text)
	}
	plane := c.ControlPlane()
	c.Wait("the control plane to say that machines are stopped", func() error {
		c.Read(plane.Name, plane)
		if ready := conditions.Get(plane, rkev1.ReadyCondition); ready == nil || ready.Reason != rollout.ReasonRestoreFailed {
			return fmt.Errorf("it says %+v", ready)
		}
		return nil
	})

	// The generation in the Cluster asks for the next one.
	lost := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
	lost.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	c.api.SetNode(lost)
	testenv.Change(t, env, c.Cluster, func(cluster *provisioningv1.Cluster) {
		cluster.Spec.RKEConfig.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "snapshot", Generation: 3, RestoreRKEConfig: "none"}
	})
	c.do("stopped ping", c.first)
	c.do("stopped etcd-snapshot-check", c.second)
	c.do("stop", c.first, c.second, c.worker)
	c.do("install etcd-snapshot-restore", c.second)
	c.startAll()
	c.ends(c.Cluster.Name+"-restore-3", operationv1.PhaseSucceeded)
	if c.api.Node("lost") != nil {
		t.Error("the Node without a Machine is still there")
	}
	c.Wait("the first server to have joined the restored one", func() error {
		if to := c.first.Secret().Annotations[rkev1.JoinedToAnnotation]; !strings.Contains(to, "192.0.2.3") ||
			to != c.second.Secret().Annotations[rkev1.JoinURLAnnotation] {
			return fmt.Errorf("it has joined %s", to)
		}
		return nil
	})
	c.do("install", c.first, c.second, c.worker)
	c.AwaitCondition(c.ControlPlane(), rkev1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	c.Wait("the status to say the end, and the Machines to be checked again", func() error {
		c.Read(plane.Name, plane)
		c.Read(c.worker.Name, machine)
		_, restoring := machine.Annotations[rkev1.RestoringAnnotation]
		_, skipped := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
		if s := plane.Status; s.ETCDSnapshotRestore == nil || s.ETCDSnapshotRestore.Generation != 3 || s.ETCDSnapshotRestorePhase != "Finished" ||
			restoring || skipped {
			return fmt.Errorf("it says %+v, %q; the Machine has %v", s.ETCDSnapshotRestore, s.ETCDSnapshotRestorePhase, machine.Annotations)
		}
		return nil
	})
}
