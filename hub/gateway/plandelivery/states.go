package plandelivery

import (
	"slices"

	"github.com/drover-dev/drover/plans"
)

// dropStates completes the changes of a report by an agent that reports checksums only and has taken the place of one that kept the state
// of its plan: what that agent has left goes, and checksums count from now on. Otherwise the hub would wait forever: for a plan to leave a
// state that nobody changes, and for the agent to answer a request for its upgrade.
func dropStates(current plans.SecretData, changes map[string]*[]byte) {
	if !keepsNoState(current, changes) {
		return
	}
	for _, key := range []string{plans.KeyPlanRevision, plans.KeyPlanCheckpoint, plans.KeyPlanProgress, plans.KeyAgentStatus} {
		if _, found := current[key]; found {
			changes[key] = nil
		}
	}
	if !plans.State(current[plans.KeyPlanState]).Terminal() {
		pending := []byte(plans.StatePending)
		changes[plans.KeyPlanState] = &pending
	}
}

// keepsNoState reports whether changes are those of an agent that does not know plan-state, in a Secret in which another agent has kept it.
// One that does reports an outcome together with the state, and until then, in progress, failures of which it retries the plan.
func keepsNoState(current plans.SecretData, changes map[string]*[]byte) bool {
	changed := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { _, found := changes[key]; return found })
	}
	state := plans.State(current[plans.KeyPlanState])
	if state == "" || len(current[plans.KeyPlanRevision]) == 0 || changed(plans.KeyPlanState, plans.KeyPlanRevision) ||
		!changed(plans.KeyLastApplyTime) {
		return false
	}
	if state == plans.StateInProgress || state == plans.StatePaused {
		successes := changes[plans.KeySuccessCount]
		return changed(plans.KeyAppliedChecksum, plans.KeyFailedChecksum) || successes != nil && string(*successes) != "0"
	}
	return true
}
