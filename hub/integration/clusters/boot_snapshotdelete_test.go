package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	operationplan "github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
	"github.com/drover-dev/drover/plans"
)

// TestETCDSnapshotDelete: a file is deleted by an instruction of the plan, and its ETCDSnapshot when the cluster does not list it. One that
// nobody can reach goes with its reason, and one that is to be restored stays.
func TestETCDSnapshotDelete(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "delete", nil)
	namespace := r.Cluster.Namespace
	api := workload.Start()
	t.Cleanup(api.Stop)
	kubeconfig, err := api.KubeconfigSecret(namespace, r.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	m := r.Register("delete", "192.0.2.29", "etcd", "control-plane", "worker")
	_, checksum := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	kubelet(t, api, m, true)
	testenv.Until(t, "the Machine to have its Node", func() error {
		machine := &clusterv1.Machine{}
		if r.Read(m.Name, machine); !machine.Status.NodeRef.IsDefined() {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	for name, node := range map[string]string{"first": m.Name, "second": m.Name, "lost": "another-node"} {
		api.SetSnapshotFile(snapshotFile(name, node))
	}
	name := func(file string) string { return r.Cluster.Name + "-" + file }
	listed := func(file string, missing bool) *rkev1.ETCDSnapshot {
		found := &rkev1.ETCDSnapshot{}
		testenv.Until(t, "ETCDSnapshot "+file, func() error {
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name(file)}, found); err != nil {
				return err
			}
			if found.Status.Missing != missing {
				return fmt.Errorf("its status is %+v", found.Status)
			}
			return nil
		})
		return found
	}
	first, second, lost := listed("first", false), listed("second", false), listed("lost", true)
	ended := func(op string, phase operationv1.Phase, reason, text string) {
		t.Helper()
		found := &operationv1.ETCDSnapshotDelete{}
		testenv.Until(t, fmt.Sprintf("ETCDSnapshotDelete %s to be %s", op, phase), func() error {
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: op}, found); err != nil {
				return err
			}
			c := conditions.Get(found, operationv1.SucceededCondition)
			if found.Status.Phase != phase || c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
				return fmt.Errorf("it is %q, %+v", found.Status.Phase, found.Status.Conditions)
			}
			return nil
		})
	}
	ref := operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: r.Cluster.Name}
	create := func(op, snapshot string) {
		d := &operationv1.ETCDSnapshotDelete{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: op}}
		d.Spec.ClusterRef, d.Spec.TTL, d.Spec.Args.Name = ref, -1, snapshot
		env.Create(t, d)
	}

	// By the command, which refuses what does not exist.
	cluster := namespace + "/" + r.Cluster.Name
	done := inBackground("snapshot", "delete", cluster, first.Name, "--yes", "--wait", "--timeout", "3m")
	plan, checksum := m.AwaitPlan(checksum)
	i := slices.IndexFunc(plan.Instructions, func(i plans.Instruction) bool { return i.Name == "etcd-snapshot-delete" })
	if i < 0 || !slices.Contains(plan.Instructions[i].Args, "file:///snapshots/first") {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Succeed()
	api.DeleteSnapshotFile("first")
	if got := <-done; got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "The snapshot first was deleted on "+m.Name) {
		t.Errorf("exit code %d, %s\n%s", got.code, got.stderr, got.stdout)
	}
	env.Gone(t, first)
	code, _, stderr := hub(env.Server.Kubeconfig(), "snapshot", "delete", cluster, "none", second.Name, "--yes")
	if code != 1 || !strings.Contains(stderr, "there is no ETCDSnapshot "+namespace+"/none") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if plan, _ = m.AwaitPlan(checksum); slices.ContainsFunc(plan.Instructions,
		func(i plans.Instruction) bool { return i.Name == "etcd-snapshot-delete" }) {
		t.Errorf("the plan still has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Succeed()

	create("unreachable", lost.Name)
	ended("unreachable", operationv1.PhaseSucceeded, "Succeeded", "cannot be reached: it is on Node another-node")
	env.Gone(t, lost)
	create("unknown", "none")
	ended("unknown", operationv1.PhaseFailed, operationplan.ReasonSnapshotInvalid, "none does not exist")

	restore := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "back"}}
	restore.Spec.ClusterRef, restore.Spec.Paused, restore.Spec.Args.Name = ref, true, second.Name
	env.Create(t, restore)
	testenv.Until(t, "the restore to wait", func() error {
		env.Get(t, namespace, restore.Name, restore)
		if restore.Status.Phase != operationv1.PhasePending {
			return fmt.Errorf("it is %q", restore.Status.Phase)
		}
		return nil
	})
	create("in-use", second.Name)
	ended("in-use", operationv1.PhaseFailed, operationplan.ReasonSnapshotInUse, "ETCDSnapshotRestore back restores")
	listed("second", false)

	invalid := &operationv1.ETCDSnapshotDelete{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "invalid"}}
	invalid.Spec.ClusterRef, invalid.Spec.Args.Name = ref, "../secrets"
	if err := env.Client.Create(t.Context(), invalid); err == nil {
		t.Error("a name that leads elsewhere is accepted")
	}
}
