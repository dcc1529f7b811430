package rkecontrolplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestObservedGeneration: a cluster that is ready with one specification is not said to have applied the next one by a reconcile that a
// conflict ended before anything was decided.
func TestObservedGeneration(t *testing.T) {
	const before, after = "v1.36.2+k3s1", "v1.36.3+k3s1"
	ready := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, kubeconfigRead: true,
		outcome:  &rollout.Outcome{Done: true},
		machines: []*machine{withNode(server("a", rollout.ProgressApplied, rollout.ChangeNone, before))}}
	ready.controlPlane.Spec.KubernetesVersion = before
	setStatus(ready, nil)
	known := ready.controlPlane
	if !known.Status.Ready || known.Status.ObservedGeneration != 1 || known.Status.AppliedSpec == nil {
		t.Fatalf("the status is %+v", known.Status)
	}
	known.Generation, known.Spec.KubernetesVersion = 2, after
	for name, tc := range map[string]struct {
		scope scope
		err   error
		want  int64
		ready bool
	}{
		"a conflict": {scope{}, nil, 1, true},
		"a wait":     {scope{wait: rollout.Wait{Reason: reasons.VersionInvalid, Message: "bad"}}, nil, 2, false},
		"a failure":  {scope{}, errTest{}, 2, false},
		"a decision": {scope{outcome: &rollout.Outcome{Wait: rollout.Wait{Reason: rollout.ReasonDelivering, Message: "a"}}}, nil, 2, false},
	} {
		tc.scope.controlPlane = known.DeepCopy()
		setStatus(&tc.scope, tc.err)
		status := tc.scope.controlPlane.Status
		if status.ObservedGeneration != tc.want || status.Ready != tc.ready {
			t.Errorf("%s: generation %d, ready %t; want %d, %t", name, status.ObservedGeneration, status.Ready, tc.want, tc.ready)
		}
		if status.AppliedSpec.KubernetesVersion != before {
			t.Errorf("%s: %s was applied", name, status.AppliedSpec.KubernetesVersion)
		}
	}
}
