package clusters

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

func hasSave(plan plans.Plan) bool {
	return slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool { return i.Name == "etcd-snapshot-save" })
}

// ended waits until an operation has ended in a phase.
func ended(t *testing.T, namespace, name string, phase operationv1.Phase) *operationv1.ETCDSnapshotSave {
	t.Helper()
	op := &operationv1.ETCDSnapshotSave{}
	testenv.Until(t, fmt.Sprintf("ETCDSnapshotSave %s to be %s", name, phase), func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, op); err != nil {
			return err
		}
		if op.Status.Phase != phase || op.Annotations[operationv1.EndedAnnotation] != string(phase) {
			return fmt.Errorf("it is %q, %+v", op.Status.Phase, op.Status.Conditions)
		}
		return nil
	})
	return op
}

// TestETCDSnapshotSave: a snapshot is saved by an instruction that is added to the delivered plan, and removed when it is done.
func TestETCDSnapshotSave(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "save", nil)
	m := r.Register("save", "192.0.2.9", "etcd", "control-plane", "worker")
	before, checksum := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name}}
	testenv.Condition(t, env, controlPlane, rkev1.BootstrappedCondition, metav1.ConditionTrue, "")

	create := func(name string, set func(*operationv1.ETCDSnapshotSave)) {
		op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: name}}
		op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: r.Cluster.Name}
		op.Spec.TTL = -1
		set(op)
		env.Create(t, op)
	}
	create("first", func(op *operationv1.ETCDSnapshotSave) { op.Spec.Args.Name = "before-the-upgrade" })
	plan, checksum := m.AwaitPlan(checksum)
	if !hasSave(plan) || !slices.Contains(plan.Instructions[len(plan.Instructions)-1].Args, "before-the-upgrade") {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	if !reflect.DeepEqual(plan.Instructions[0], before.Instructions[0]) {
		t.Errorf("the plan installs with %+v, before with %+v", plan.Instructions[0], before.Instructions[0])
	}
	// A change that restarts the machine waits for the operation.
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.ProvisionGeneration++ })
	testenv.Until(t, "the control plane to have seen the change", func() error {
		env.Get(t, controlPlane.Namespace, controlPlane.Name, controlPlane)
		if controlPlane.Spec.ProvisionGeneration != 1 || controlPlane.Status.ObservedGeneration != controlPlane.Generation {
			return fmt.Errorf("generation %d of %d", controlPlane.Status.ObservedGeneration, controlPlane.Generation)
		}
		return nil
	})
	m.Take()
	m.Succeed()
	ended(t, r.Cluster.Namespace, "first", operationv1.PhaseSucceeded)
	plan, checksum = m.AwaitPlan(checksum)
	if hasSave(plan) || reflect.DeepEqual(plan.Instructions[0], before.Instructions[0]) {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Succeed()

	// One that fails, and one that waits for it and goes on when it has ended.
	create("second", func(*operationv1.ETCDSnapshotSave) {})
	plan, checksum = m.AwaitPlan(checksum)
	if !hasSave(plan) {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Fail()
	second := ended(t, r.Cluster.Namespace, "second", operationv1.PhaseFailed)
	if len(second.Status.Machines) != 1 || second.Status.Machines[0].Message == "" || len(second.OwnerReferences) != 1 {
		t.Errorf("got %+v", second)
	}
	plan, checksum = m.AwaitPlan(checksum)
	if hasSave(plan) {
		t.Fatal("the plan still saves a snapshot")
	}
	m.Take()
	m.Succeed()

	// What has ended and is no longer kept is deleted.
	create("third", func(op *operationv1.ETCDSnapshotSave) { op.Spec.TTL, op.Spec.MachineName = 0, "unknown" })
	env.Gone(t, &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "third"}})

	// The generation in the Cluster creates one, and follows it.
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCDSnapshotCreate = &rkev1.ETCDSnapshotCreate{Generation: 7}
	})
	if plan, _ = m.AwaitPlan(checksum); !hasSave(plan) {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Succeed()
	ended(t, r.Cluster.Namespace, r.Cluster.Name+"-snapshot-7", operationv1.PhaseSucceeded)
	testenv.Until(t, "the status to tell the end", func() error {
		env.Get(t, controlPlane.Namespace, controlPlane.Name, controlPlane)
		if s := controlPlane.Status; s.ETCDSnapshotCreate == nil || s.ETCDSnapshotCreate.Generation != 7 ||
			s.ETCDSnapshotCreatePhase != "Finished" {
			return fmt.Errorf("it says %+v, %q", s.ETCDSnapshotCreate, s.ETCDSnapshotCreatePhase)
		}
		return nil
	})
}
