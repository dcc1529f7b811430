package reasons

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/plan/rollout"
)

func TestGet(t *testing.T) {
	if got := Get("WaitingForProbes"); got != (Reason{Name: "WaitingForProbes", Status: metav1.ConditionUnknown}) {
		t.Errorf("a reason that is not listed is %+v", got)
	}
	// Nothing goes on before a user acts.
	for _, name := range []string{rollout.ReasonPlanPaused, rollout.ReasonPlanCanceled} {
		if got := Get(name); got.Status != metav1.ConditionFalse || got.Benign {
			t.Errorf("%+v", got)
		}
	}
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.Name] || r.Status == "" {
			t.Errorf("%s stands twice, or has no status", r.Name)
		}
		seen[r.Name] = true
		if Get(r.Name) != r {
			t.Errorf("Get(%s) is %+v", r.Name, Get(r.Name))
		}
	}
}
