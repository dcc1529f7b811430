package rkecontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestOwnerRemediated: a Machine that nobody replaces does not wait for its replacement.
func TestOwnerRemediated(t *testing.T) {
	const waiting = clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	for name, tc := range map[string]struct {
		owner           string
		healthy, marked bool
		want            string // the reason of OwnerRemediated
	}{
		"unhealthy":                  {marked: true, want: clusterv1.MachineSetMachineCannotBeRemediatedReason},
		"healthy again":              {marked: true, healthy: true},
		"unhealthy, of a MachineSet": {owner: "MachineSet", marked: true, want: waiting},
		"healthy, of a MachineSet":   {owner: "MachineSet", marked: true, healthy: true, want: waiting},
		"unhealthy, not marked":      {},
	} {
		m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "v1.36.3+k3s1")
		m.machine.Namespace, m.machine.UID = "fleet", "a"
		if tc.owner != "" {
			m.machine.OwnerReferences = []metav1.OwnerReference{{Kind: tc.owner, Controller: new(true)}}
		}
		checked := metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason}
		if tc.healthy {
			checked.Status, checked.Reason = metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason
		}
		conditions.Set(m.machine, checked)
		if tc.marked {
			conditions.Set(m.machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
				Reason: waiting})
		}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithStatusSubresource(m.machine).
			WithObjects(m.machine).Build()
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{m}}
		s.controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
		r, got := &Reconciler{Client: c, Now: time.Now}, &clusterv1.Machine{}
		for range 2 { // the second time there is nothing to do
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), m.machine); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := r.updateMachine(t.Context(), s, m, true); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if reason := conditions.GetReason(got, clusterv1.MachineOwnerRemediatedCondition); reason != tc.want {
			t.Errorf("%s: OwnerRemediated has the reason %q, want %q", name, reason, tc.want)
		}
		if !conditions.Has(got, clusterv1.MachineHealthCheckSucceededCondition) {
			t.Errorf("%s: the condition of the health check is gone", name)
		}
	}
}

// TestSkippedRemediation: a Machine that was found unhealthy, and is not to be replaced any more, does not wait for its turn to be.
func TestSkippedRemediation(t *testing.T) {
	const waiting = clusterv1.MachineSetMachineRemediationDeferredReason
	restore := func(_ *machine, k *marks) {
		k.restoring = "a restore"
		k.setSkip(rkev1.RestoringAnnotation, true)
	}
	for name, tc := range map[string]struct {
		owner   string
		skipped bool // by a user
		change  func(*machine, *marks)
		want    string // the reason of OwnerRemediated
	}{
		"waits for its turn":      {owner: "MachineSet", want: waiting},
		"kept by a user":          {owner: "MachineSet", skipped: true},
		"kept during a restore":   {owner: "MachineSet", change: restore},
		"outside of a MachineSet": {skipped: true, want: waiting}, // it is not replaced, and its condition says so
	} {
		m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "v1.36.3+k3s1")
		m.machine.Namespace, m.machine.UID = "fleet", "a"
		if tc.owner != "" {
			m.machine.OwnerReferences = []metav1.OwnerReference{{Kind: tc.owner, Controller: new(true)}}
		}
		if tc.skipped {
			m.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}
		conditions.Set(m.machine, metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineHealthCheckUnhealthyNodeReason})
		conditions.Set(m.machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: waiting})
		if tc.change == nil {
			tc.change = func(*machine, *marks) {}
		}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithStatusSubresource(m.machine).
			WithObjects(m.machine).Build()
		r, got := &Reconciler{Client: c}, &clusterv1.Machine{}
		for range 2 { // the second time there is nothing to do
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), m.machine); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := r.markMachines(t.Context(), &scope{machines: []*machine{m}}, tc.change); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if reason := conditions.GetReason(got, clusterv1.MachineOwnerRemediatedCondition); reason != tc.want {
			t.Errorf("%s: OwnerRemediated has the reason %q, want %q", name, reason, tc.want)
		}
		if !conditions.Has(got, clusterv1.MachineHealthCheckSucceededCondition) {
			t.Errorf("%s: the condition of the health check is gone", name)
		}
	}
}
