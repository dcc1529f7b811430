package timeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// anOperation is an operation for Cluster ns/c in a phase and a step.
func anOperation(phase operationv1.Phase, step, reason string, status metav1.ConditionStatus) *operationv1.ETCDSnapshotSave {
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "op", UID: "uid-op",
		CreationTimestamp: metav1.NewTime(noon)}}
	op.Spec.ClusterRef.Name = "c"
	op.Status = operationv1.Status{Phase: phase, Step: step, Conditions: []metav1.Condition{
		condition(operationv1.SucceededCondition, status, reason, noon),
	}}
	return op
}

func TestOperationPhase(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	ending := anOperation(operationv1.PhaseInProgress, "Verify", "InProgress", unknown)
	ending.Annotations = map[string]string{operationv1.EndedAnnotation: "Failed"}
	for want, op := range map[string]operationv1.Operation{
		"Pending running":           &operationv1.ETCDSnapshotSave{},
		"WaitingForMachine running": anOperation(operationv1.PhasePending, "", "WaitingForMachine", unknown),
		"Save running":              anOperation(operationv1.PhaseInProgress, "Save", "InProgress", unknown),
		"MachineFailed failed":      anOperation(operationv1.PhaseFailed, "", "MachineFailed", no),
		"Succeeded done":            anOperation(operationv1.PhaseSucceeded, "", "Succeeded", yes),
		"Verify running":            ending,
		"Canceled done":             anOperation(operationv1.PhaseCanceled, "", "Canceled", no),
	} {
		p := operationPhase(op)
		if got := p.Name + " " + string(p.Outcome); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOperationEvents: the operation and its Cluster have an Event for each step and for the end, also of an operation that was deleted as
// soon as it had ended.
func TestOperationEvents(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme,
		operationv1.AddToScheme)
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid-c"},
		Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()
	now := noon
	r := &Reconciler{Client: c, Live: c, Now: func() time.Time { return now }}
	key := client.ObjectKey{Namespace: "ns", Name: "c"}
	reconcile := func() {
		t.Helper()
		now = now.Add(time.Minute)
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	op := anOperation(operationv1.PhaseInProgress, "Prepare", "InProgress", metav1.ConditionUnknown)
	if err := c.Create(t.Context(), op.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	reconcile()
	reconcile()
	current := &operationv1.ETCDSnapshotSave{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(op), current); err != nil {
		t.Fatal(err)
	}
	current.Status.Step = "Save"
	if err := c.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Delete(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	reconcile() // The cache has the deletion before its handlers.
	ended := anOperation(operationv1.PhaseFailed, "", "MachineFailed", metav1.ConditionFalse)
	if !r.rememberEnded().Delete(event.DeleteEvent{Object: ended}) {
		t.Error("the deletion is dropped")
	}
	reconcile()
	reconcile()

	var events corev1.EventList
	if err := c.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, e := range events.Items {
		got[e.InvolvedObject.Kind+" "+e.InvolvedObject.APIVersion+" "+e.Type+" "+e.Reason+" "+e.Message] += int(e.Count)
	}
	const on, of = "ETCDSnapshotSave operation.cattle.io/v1alpha1 ", "Cluster provisioning.cattle.io/v1 "
	want := map[string]int{
		on + "Normal OperationInProgress Step Prepare: about InProgress":                      1,
		of + "Normal OperationInProgress ETCDSnapshotSave op: Step Prepare: about InProgress": 1,
		on + "Normal OperationInProgress Step Save: about InProgress":                         1,
		of + "Normal OperationInProgress ETCDSnapshotSave op: Step Save: about InProgress":    1,
		on + "Warning OperationMachineFailed about MachineFailed":                             1,
		of + "Warning OperationMachineFailed ETCDSnapshotSave op: about MachineFailed":        1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	record, _, err := timelines.Read(t.Context(), c, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range record.Subjects {
		if !s.IsOperation() {
			continue
		}
		var names []string
		for _, p := range s.Phases {
			names = append(names, p.Name+" "+string(p.Outcome))
		}
		if diff := cmp.Diff([]string{"Prepare done", "Save failed", "MachineFailed failed"}, names); diff != "" || s.Gone == nil {
			t.Errorf("gone at %v; -want +got:\n%s", s.Gone, diff)
		}
		return
	}
	t.Error("the operation is not in the timeline")
}

// TestEndedOperationsAreBounded: a replica that never records them does not fill its memory.
func TestEndedOperationsAreBounded(t *testing.T) {
	r := &Reconciler{}
	for i := range maxEndedClusters + 10 {
		for range maxEnded + 5 {
			r.keepEnded(client.ObjectKey{Namespace: "ns", Name: fmt.Sprint(i)}, &operationv1.ETCDSnapshotSave{})
		}
	}
	if first := r.takeEnded(client.ObjectKey{Namespace: "ns", Name: "0"}); len(first) != maxEnded || len(r.ended) != maxEndedClusters-1 {
		t.Errorf("%d operations of the first of %d clusters", len(first), len(r.ended)+1)
	}
}

// TestCanceledOperation: what a user has ended is no warning.
func TestCanceledOperation(t *testing.T) {
	op := anOperation(operationv1.PhaseCanceled, "", "Canceled", metav1.ConditionFalse)
	m := &clusterState{recovered: true}
	got := m.transitions([]conditioned{op}, noon, noon)
	if len(got) != 1 || got[0].reason != "OperationCanceled" || newEvent(got[0], op, "", noon).Type != corev1.EventTypeNormal {
		t.Errorf("got %v", reasonsOf(got))
	}
}
