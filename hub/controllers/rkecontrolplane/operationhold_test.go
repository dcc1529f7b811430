package rkecontrolplane

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestOperationsAreHeld: while the control plane waits before it comes to operations, each says what for; a canceled one ends, one that has
// ended is deleted, and nothing is written again. Those of another Cluster do not matter.
func TestOperationsAreHeld(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := metav1.NewTime(now.Add(-time.Hour))
	save := func(name, cluster string, change func(*operationv1.ETCDSnapshotSave)) *operationv1.ETCDSnapshotSave {
		op := of(&operationv1.ETCDSnapshotSave{}, cluster, "")
		op.Name, op.Spec.TTL = name, -1
		change(op)
		return op
	}
	keep := func(*operationv1.ETCDSnapshotSave) {}
	objects := []client.Object{save("new", "c", keep), save("other", "d", keep),
		save("canceled", "c", func(op *operationv1.ETCDSnapshotSave) { op.Spec.Cancel = true }),
		save("running", "c", func(op *operationv1.ETCDSnapshotSave) {
			op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, operationv1.StepSave
		}),
		save("ended", "c", func(op *operationv1.ETCDSnapshotSave) {
			op.Spec.TTL, op.Status.Phase, op.Status.TerminatedAt = 60, operationv1.PhaseFailed, &at
		})}
	for name, plane := range map[string]string{"c": "c", "d": "d"} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: name}}
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
			Name: plane}
		objects = append(objects, cluster)
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, operationv1.AddToScheme)).
		WithStatusSubresource(&operationv1.ETCDSnapshotSave{}).WithObjects(objects...).Build()
	r := &Reconciler{Client: c, Now: func() time.Time { return now }}
	reconcile := func() (found map[string]*operationv1.ETCDSnapshotSave, versions []string) {
		t.Helper()
		s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: "c"}},
			refused: cause.New("OwnerMismatch", "the Cluster is another one")}
		if err := r.reconcileNormal(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var list operationv1.ETCDSnapshotSaveList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		found = map[string]*operationv1.ETCDSnapshotSave{}
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
			versions = append(versions, list.Items[i].Name+" "+list.Items[i].ResourceVersion)
		}
		return found, versions
	}
	found, versions := reconcile()
	for name, want := range map[string]struct {
		phase        operationv1.Phase
		step, reason string
	}{
		"new":      {operationv1.PhasePending, "", "OwnerMismatch"},
		"running":  {operationv1.PhaseInProgress, operationv1.StepSave, "OwnerMismatch"},
		"canceled": {operationv1.PhaseCanceled, "", "Canceled"},
		"other":    {},
	} {
		op := found[name]
		if got := conditions.GetReason(op, operationv1.SucceededCondition); op.Status.Phase != want.phase || op.Status.Step != want.step ||
			got != want.reason {
			t.Errorf("%s: reason %q, %+v", name, got, op.Status)
		}
	}
	if found["ended"] != nil {
		t.Error("the one that has ended was not deleted")
	}
	if _, again := reconcile(); !slices.Equal(versions, again) {
		t.Errorf("written again: %v, %v", versions, again)
	}
}

// TestOperationsOfDeletedControlPlane: while Machines of a control plane are being deleted, operations say so, and can be canceled.
func TestOperationsOfDeletedControlPlane(t *testing.T) {
	waiting, running := of(&operationv1.ETCDSnapshotSave{}, "c", ""), of(&operationv1.ETCDSnapshotSave{}, "c", operationv1.PhaseInProgress)
	waiting.Name, waiting.UID, waiting.Spec.TTL = "waiting", "waiting", -1
	running.Name, running.UID, running.Spec.TTL, running.Status.Step = "running", "running", -1, operationv1.StepSave
	canceled := of(&operationv1.ETCDSnapshotSave{}, "c", "")
	canceled.Name, canceled.UID, canceled.Spec.TTL, canceled.Spec.Cancel = "canceled", "canceled", -1, true
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: "m", UID: "m",
		Finalizers: []string{"example.com/stays"},
		Labels:     map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}}}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, operationv1.AddToScheme)).
		WithStatusSubresource(&operationv1.ETCDSnapshotSave{}).WithObjects(waiting, running, canceled, machine).Build()
	r := &Reconciler{Client: c, Cache: c, Live: c, Now: time.Now}
	s := &scope{cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: "c"}},
		controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: "c",
			Finalizers: []string{Finalizer}}}}
	if err := r.reconcileDelete(t.Context(), s); err != nil || len(s.controlPlane.Finalizers) == 0 {
		t.Fatalf("%v, finalizers %v", err, s.controlPlane.Finalizers)
	}
	for name, want := range map[string]struct {
		phase  operationv1.Phase
		reason string
	}{
		"waiting":  {operationv1.PhasePending, rollout.ReasonDeleting},
		"running":  {operationv1.PhaseInProgress, rollout.ReasonDeleting},
		"canceled": {operationv1.PhaseCanceled, "Canceled"},
	} {
		op := &operationv1.ETCDSnapshotSave{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: controlPlaneKey.Namespace, Name: name}, op); err != nil {
			t.Fatal(err)
		}
		if reason := conditions.GetReason(op, operationv1.SucceededCondition); op.Status.Phase != want.phase || reason != want.reason {
			t.Errorf("%s: reason %q, %+v", name, reason, op.Status)
		}
	}
}
