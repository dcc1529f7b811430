package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestUndecided: a reconcile that ends before plans are rendered says nothing new of what follows from them, and one that has not asked the
// cluster does not say that its control plane is available.
func TestUndecided(t *testing.T) {
	const down = "Unknown ConnectionDown The cluster's API has not answered since noon"
	r, _, next := bigCluster(t, 4)
	s := next()
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = new(true)
	s.controlPlane.Spec.ProvisionGeneration = 7
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	conditions.Set(s.controlPlane, metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionUnknown,
		Reason: clusterv1.ConnectionDownReason, Message: "The cluster's API has not answered since noon"})
	known := s.controlPlane
	said := func(c *rkev1.RKEControlPlane) map[string]string {
		all := summary(&scope{controlPlane: c})
		return map[string]string{"Available": all["Available"], "RollingOut": all["RollingOut"], "MachinesUpToDate": all["MachinesUpToDate"]}
	}
	if got := said(known); ptr.Deref(known.Status.UpToDateReplicas, 9) != 0 || got["Available"] != down ||
		!conditions.IsTrue(known, clusterv1.RollingOutCondition) || !conditions.IsFalse(known, clusterv1.MachinesUpToDateCondition) {
		t.Fatalf("%d machines are up to date, %v", ptr.Deref(known.Status.UpToDateReplicas, 9), got)
	}
	r.Client = fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, operationv1.AddToScheme)).Build()
	r.ClusterCache = clustercache.NewFakeEmptyClusterCache() // that of a hub that was just started
	for name, end := range map[string]func(*scope) error{
		"by a conflict": func(s *scope) error { return r.loadMachines(t.Context(), s) },
		// The infrastructure of the Cluster is not provisioned.
		"by a wait": func(s *scope) error { return r.reconcileNormal(t.Context(), s) },
	} {
		s := next()
		s.controlPlane = known.DeepCopy()
		if err := end(s); err != nil {
			t.Fatalf("ended %s: %v", name, err)
		}
		setStatus(s, nil)
		if len(s.machines) != 4 || s.unasked != (s.wait == rollout.Wait{}) {
			t.Errorf("ended %s: %d machines, waits for %+v, the cluster was not asked: %t", name, len(s.machines), s.wait, s.unasked)
		}
		if diff := cmp.Diff(said(known), said(s.controlPlane)); diff != "" {
			t.Errorf("ended %s (-known +reported):\n%s", name, diff)
		}
		if got := ptr.Deref(s.controlPlane.Status.UpToDateReplicas, 9); got != 0 {
			t.Errorf("ended %s: %d machines are up to date", name, got)
		}
	}
}

// TestAvailableAtStart: what agents report counts until a hub that was just started has reached the cluster, unless the cluster did not
// answer before.
func TestAvailableAtStart(t *testing.T) {
	for _, tc := range []struct{ before, want string }{
		{"", clusterv1.AvailableReason}, {clusterv1.NotAvailableReason, clusterv1.AvailableReason},
		{clusterv1.ConnectionDownReason, clusterv1.ConnectionDownReason},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, neverReached: true,
			machines: []*machine{server("a", rollout.ProgressApplied, rollout.ChangeNone, "")}}
		s.controlPlane.Status.Initialization.ControlPlaneInitialized = new(true)
		if tc.before != "" {
			conditions.Set(s.controlPlane, metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionUnknown,
				Reason: tc.before})
		}
		setContractConditions(s)
		if got := conditions.GetReason(s.controlPlane, clusterv1.AvailableCondition); got != tc.want {
			t.Errorf("before %q, now %q, want %q", tc.before, got, tc.want)
		}
	}
}
