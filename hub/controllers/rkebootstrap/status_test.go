package rkebootstrap

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/patch"
)

// TestConditionsOfEarlierHubs: what they wrote here and on the Machine is removed, and what other controllers write here stays.
func TestConditionsOfEarlierHubs(t *testing.T) {
	b := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "one"}}
	for _, name := range []string{rkev1.ReconciledCondition, rkev1.PlanAppliedCondition, rkev1.SystemAgentUpgradedCondition} {
		conditions.Set(b, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Earlier"})
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).WithObjects(b).WithStatusSubresource(b).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		t.Fatal(err)
	}
	helper := patch.NewHelper(c, b, fieldOwner, ownedConditions...)
	setStatus(&scope{bootstrap: b})
	if err := helper.Patch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	stored := &rkev1.RKEBootstrap{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), stored); err != nil {
		t.Fatal(err)
	}
	if conditions.Has(stored, rkev1.ReconciledCondition) || conditions.Has(stored, rkev1.PlanAppliedCondition) ||
		!conditions.Has(stored, rkev1.SystemAgentUpgradedCondition) || !conditions.IsTrue(stored, rkev1.ReadyCondition) {
		t.Errorf("it has %+v", stored.Status.Conditions)
	}
}
