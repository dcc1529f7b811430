package rollout

import (
	"cmp"
	"strings"
)

// verifyApplied waits for the delivered plan to be applied, for its probes, and for the Node:
//
//	Progress  and                    reason
//	failed                           PlanFailed
//	paused                           PlanPaused
//	canceled                         PlanCanceled
//	pending                          WaitingForAgent
//	applying                         ApplyingPlan
//	applied   a probe not healthy    WaitingForProbes
//	applied   the Node not ready     WaitingForNode
func verifyApplied(_ *view, m *Machine) (Decision, bool) {
	switch m.Progress {
	case ProgressFailed:
		return wait(ReasonPlanFailed, "%s", cmp.Or(m.Failure, "Applying the plan failed"))
	case ProgressPaused:
		return wait(ReasonPlanPaused, "The plan is paused on the machine")
	case ProgressCanceled:
		return wait(ReasonPlanCanceled, "The plan was canceled on the machine")
	case ProgressPending:
		switch {
		case !m.CheckedIn:
			return wait(ReasonWaitingForAgent, "Waiting for the agent to check in and apply the first plan")
		case m.Node.Unready():
			return wait(ReasonWaitingForAgent,
				"Waiting for the agent to start applying the plan; the Node is not ready: check that the machine is up")
		}
		return wait(ReasonWaitingForAgent, "Waiting for the agent to start applying the plan")
	case ProgressApplying:
		if m.AgentPhase != "" {
			return wait(ReasonApplyingPlan, "Waiting for the agent to apply the plan: %s", m.AgentPhase)
		}
		return wait(ReasonApplyingPlan, "Waiting for the agent to apply the plan")
	}
	switch {
	case !m.healthy():
		return wait(ReasonWaitingForProbes, "Waiting for probes: %s", strings.Join(notHealthy(m.Unhealthy, m.HealthUnknown), ", "))
	case m.Node.Unready():
		return wait(ReasonWaitingForNode, "Waiting for the Node to be ready")
	}
	return undecided()
}

func kubeletOutdated(_ *view, m *Machine) (Decision, bool) {
	if m.Version == "" || m.WantVersion == "" || sameKubernetes(m.Version, m.WantVersion) {
		return undecided()
	}
	return wait(ReasonWaitingForKubelet, "Waiting for the kubelet to report version %s; it reports %s", m.WantVersion, m.Version)
}
