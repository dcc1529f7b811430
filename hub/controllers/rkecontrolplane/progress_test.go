package rkecontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

// TestHoldProgress: a message that changes all the time is shown once a second, and everything else at once.
func TestHoldProgress(t *testing.T) {
	now := time.Unix(1000, 0)
	shown := &rkev1.RKEControlPlane{}
	known := &clusterPlans{}
	// step is a reconcile that sets a condition; it returns whether that is shown.
	step := func(condition metav1.Condition, change func(*rkev1.RKEControlPlaneStatus)) (bool, time.Duration) {
		s := &scope{controlPlane: shown.DeepCopy(), plans: known}
		conditions.Set(s.controlPlane, condition)
		if change != nil {
			change(&s.controlPlane.Status)
		}
		s.holdProgress(&shown.Status, now)
		shown = s.controlPlane
		return conditions.GetMessage(shown, condition.Type) == condition.Message, s.requeueAfter
	}
	waits := func(message string) metav1.Condition {
		return metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "Waiting", Message: message}
	}
	for _, tc := range []struct {
		name    string
		after   time.Duration
		set     metav1.Condition
		change  func(*rkev1.RKEControlPlaneStatus)
		held    bool
		requeue time.Duration
	}{
		{name: "the first", set: waits("none of 3")},
		{name: "progress", set: waits("1 of 3")},
		{name: "progress a moment later", after: 300 * time.Millisecond, set: waits("2 of 3"), held: true, requeue: 700 * time.Millisecond},
		{name: "the same again", after: 100 * time.Millisecond, set: waits("2 of 3"), held: true, requeue: 600 * time.Millisecond},
		{name: "nothing new", set: waits("1 of 3")},
		{name: "with something else", set: waits("2 of 3"), change: func(s *rkev1.RKEControlPlaneStatus) { s.Initialized = true }},
		{name: "after a second", after: time.Second, set: waits("3 of 3")},
		{name: "a failure", after: time.Millisecond,
			set: metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "PlanFailed", Message: "failed"}},
		{name: "of another clock", after: -time.Hour, set: metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse,
			Reason: "PlanFailed", Message: "again"}},
	} {
		now = now.Add(tc.after)
		if ok, requeue := step(tc.set, tc.change); ok == tc.held || requeue != tc.requeue {
			t.Errorf("%s: shown %t, next reconcile after %s", tc.name, ok, requeue)
		}
	}
}

// TestRestsBetweenReconciles: a large cluster is reconciled again after a time for its size.
func TestRestsBetweenReconciles(t *testing.T) {
	key, now := client.ObjectKey{Namespace: "fleet", Name: "one"}, time.Unix(1000, 0)
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).WithObjects(
		&rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}).Build()
	r := &Reconciler{Client: c, Now: func() time.Time { return now }}
	r.plans.of(key).nextReconcile = now.Add(500 * time.Millisecond)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != 500*time.Millisecond {
		t.Errorf("got %+v, %v", result, err)
	}
}

// TestUntilProgressShown: what an agent does with a plan at once is not written as a condition.
func TestUntilProgressShown(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	left := plansecrets.ProgressShownAfter(0) - time.Second
	for name, tc := range map[string]struct {
		decision  rollout.Decision
		delivered time.Duration
		want      time.Duration
	}{
		"delivered now, after an older plan": {rollout.Decision{Deliver: true, Reason: rollout.ReasonDelivering}, time.Hour,
			plansecrets.ProgressShownAfter(0)},
		"not started":            {rollout.Decision{Reason: rollout.ReasonWaitingForAgent}, time.Second, left},
		"being applied":          {rollout.Decision{Reason: rollout.ReasonApplyingPlan}, time.Second, left},
		"being applied for long": {rollout.Decision{Reason: rollout.ReasonApplyingPlan}, time.Minute, 0},
		"failed":                 {rollout.Decision{Reason: rollout.ReasonPlanFailed}, time.Second, 0},
		"done":                   {rollout.Decision{Done: true}, time.Second, 0},
	} {
		m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
		m.decision = tc.decision
		m.secret.Annotations = map[string]string{rkev1.PlanLastUpdatedAnnotation: now.Add(-tc.delivered).Format(time.RFC3339)}
		if got := m.untilProgressShown(plansecrets.ProgressShownAfter(0), now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
