package rollout

import (
	"cmp"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// agentHelp ends messages that wait for an agent.
const agentHelp = "if this lasts, run on the machine: systemctl status rancher-system-agent, then system-agent doctor"

// bootstrapHelp is agentHelp for a machine that may not have an agent yet.
const bootstrapHelp = "if this lasts, see /var/log/cloud-init-output.log on the machine, or its console, and run on it: " +
	"systemctl status rancher-system-agent, then system-agent doctor"

// PausedMessage says what a paused plan waits for. secret is the name of the plan Secret.
func PausedMessage(secret string) string {
	return "The plan is paused by annotation " + plans.AnnotationPaused + " of Secret " + secret + ": remove the annotation to continue"
}

// CanceledMessage says how to get a machine on whose plan was canceled. secret is the name of the plan Secret.
func CanceledMessage(secret string) string {
	return "The plan was canceled by annotation " + plans.AnnotationCanceled + " of Secret " + secret +
		": to continue, remove the annotation and change the cluster's configuration"
}

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
func verifyApplied(v *view, m *Machine) (Decision, bool) {
	switch m.Progress {
	case ProgressFailed:
		return wait(ReasonPlanFailed, "%s", cmp.Or(m.Failure, "Applying the plan failed"))
	case ProgressPaused:
		return wait(ReasonPlanPaused, "%s", PausedMessage(m.PlanSecret))
	case ProgressCanceled:
		return wait(ReasonPlanCanceled, "%s", CanceledMessage(m.PlanSecret))
	case ProgressPending:
		switch {
		case !m.CheckedIn && m.Provided: // that it has registered is left out: most do within a minute, and each would be another message
			return wait(ReasonWaitingForAgent, "Waiting for the machine to run its bootstrap data, and for its agent to check in and apply the "+
				"first plan; "+bootstrapHelp)
		case !m.CheckedIn:
			return wait(ReasonWaitingForAgent, "Waiting for the agent to check in and apply the first plan; "+agentHelp)
		case m.agentUnreachable(v.Now): // an agent that is there is seen again and again, and each time would be another message
			return wait(ReasonWaitingForAgent, "Waiting for the agent, last seen at %s, to start applying the plan; check that the machine is up; "+
				agentHelp, m.LastSeen.UTC().Format("2006-01-02 15:04:05 MST"))
		case m.Node.Unready():
			return wait(ReasonWaitingForAgent,
				"Waiting for the agent to start applying the plan; the Node is not ready: check that the machine is up; "+agentHelp)
		}
		return wait(ReasonWaitingForAgent, "Waiting for the agent to start applying the plan; "+agentHelp)
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
