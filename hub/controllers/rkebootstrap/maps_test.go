package rkebootstrap

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestControlPlaneToBootstraps: a change of the RKEControlPlane concerns the bootstrap data of machines that have not reported, also of
// those about which an earlier hub says that they wait for a plan.
func TestControlPlaneToBootstraps(t *testing.T) {
	const namespace, cluster = "fleet", "one"
	var objects []client.Object
	for name, reason := range map[string]string{
		"new": "", "of-an-earlier-hub": rkev1.WaitingForPlanReason, "applied": "Applied", "failed": "Failed",
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-machine", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		}}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap", Name: name,
		}
		if reason != "" {
			m.Status.Conditions = []metav1.Condition{{Type: rkev1.PlanAppliedCondition, Reason: reason}}
		}
		objects = append(objects, m)
	}
	scheme := fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster},
	}}}
	var got []string
	for _, request := range r.controlPlaneToBootstraps(t.Context(), controlPlane) {
		got = append(got, request.Name)
	}
	slices.Sort(got)
	if want := []string{"new", "of-an-earlier-hub"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
