package timeline

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// message is what is told of a condition's message. That of a failed plan quotes what a program wrote, which may be a secret: whoever may
// read Events and ConfigMaps is told where to look.
func (s *scope) message(reason, message string) string {
	if reason != rollout.ReasonPlanFailed {
		return message
	}
	failed, on := s.failedMachines(), ""
	if len(failed) > 0 {
		on = " on " + strings.Join(failed[:min(len(failed), 3)], ", ")
	}
	return "Applying the plan has failed" + on + "; the condition " + rkev1.PlanAppliedCondition + " of the Machine says what came out"
}

// failedMachines are the names of the machines whose plan has failed, as far as the cache knows.
func (s *scope) failedMachines() (failed []string) {
	for i := range s.machines {
		m := &s.machines[i]
		c := conditions.Get(m, rkev1.PlanAppliedCondition)
		if c != nil && c.Status == metav1.ConditionFalse {
			failed = append(failed, m.Name)
		}
	}
	return failed
}
