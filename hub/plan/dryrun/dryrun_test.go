package dryrun

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNameTaken: machines of a cluster that was made for something else are not those of a Cluster with its name.
func TestNameTaken(t *testing.T) {
	native := &clusterv1.Cluster{}
	native.Namespace, native.Name = "ns", "demo"
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, provisioningv1.AddToScheme)
	o := Options{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(native).Build()}
	_, err := o.diff(t.Context(), client.ObjectKeyFromObject(native), nil, withPools(), nil)
	if err == nil || !strings.Contains(err.Error(), "Cluster API Cluster demo exists and was not made for this Cluster") {
		t.Errorf("got %v", err)
	}
}

// TestHeldBack: what the hub alone knows about when a change is delivered is read from the control plane.
func TestHeldBack(t *testing.T) {
	native, plane := &clusterv1.Cluster{}, &rkev1.RKEControlPlane{}
	native.Namespace, native.Name, native.UID = "ns", "demo", "1"
	plane.Namespace, plane.Name = "ns", "demo"
	plane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(native, clusterv1.GroupVersion.WithKind("Cluster"))}
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, provisioningv1.AddToScheme, rkev1.AddToScheme)
	o := Options{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(native).Build()}
	for reason, want := range map[string][]string{
		rollout.ReasonApplyingPlan: nil,
		rollout.ReasonHubRestored:  {"changes are held back at present (HubRestored): Node a runs v1.36.3"},
	} {
		conditions.Set(plane, metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason,
			Message: "Node a runs v1.36.3"})
		of := &target{controlPlane: plane}
		report, err := o.diff(t.Context(), client.ObjectKeyFromObject(native), of, of, nil)
		if err != nil || !slices.Equal(report.Warnings, want) {
			t.Errorf("%s: got %+v, %v", reason, report, err)
		}
	}
}

// TestHeldBackByPause: a change that is not delivered since the cluster is paused has that for a reason, whatever Ready says.
func TestHeldBackByPause(t *testing.T) {
	plane := &rkev1.RKEControlPlane{}
	conditions.Set(plane, metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	for status, want := range map[metav1.ConditionStatus]string{
		metav1.ConditionTrue:  "changes are held back at present (Paused): Cluster spec.paused is set to true",
		metav1.ConditionFalse: "",
	} {
		conditions.Set(plane, metav1.Condition{Type: clusterv1.PausedCondition, Status: status, Reason: clusterv1.PausedReason,
			Message: "Cluster spec.paused is set to true"})
		if got := heldBack(&target{controlPlane: plane}); got != want {
			t.Errorf("Paused is %s: got %q", status, got)
		}
	}
}

// TestRestartsHeldBack: where changes that restart machines wait for a restore, a report without their order says so.
func TestRestartsHeldBack(t *testing.T) {
	in := rollout.Inputs{}
	if got := restartsHeldBack(in); got != "" {
		t.Errorf("got %q", got)
	}
	in.Hold = rollout.Wait{Reason: rollout.ReasonRestoreFailed, Message: "Restore it with another generation"}
	const want = "changes that restart machines are held back (RestoreFailed), and have no order: Restore it with another generation"
	if got := restartsHeldBack(in); got != want {
		t.Errorf("got %q", got)
	}
}

// TestBeforeTakeover: values of charts have the name of the management Cluster, which a Cluster of Rancher keeps. Until the hub has taken
// it over, only the RKEControlPlane of Rancher has that name.
func TestBeforeTakeover(t *testing.T) {
	for annotated, want := range map[string]string{"": "c-m-abcdefgh", "c-m-12345678": "c-m-12345678"} {
		of := withPools()
		if annotated != "" {
			of.cluster.Annotations = map[string]string{rkev1.ManagementClusterNameAnnotation: annotated}
		}
		of.controlPlane = &rkev1.RKEControlPlane{Spec: rkev1.RKEControlPlaneSpec{ManagementClusterName: "c-m-abcdefgh"}}
		if err := of.derive(); err != nil {
			t.Fatal(err)
		}
		if got := of.controlPlane.Spec.ManagementClusterName; got != want {
			t.Errorf("annotation %q: got %q, want %q", annotated, got, want)
		}
	}
}
