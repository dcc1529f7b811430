package rollout

import "strings"

func hasFailed(_ *view, m Machine) (Decision, bool) {
	if m.Progress != ProgressFailed {
		return pass()
	}
	if m.Failure == "" {
		return wait(ReasonPlanFailed, "The plan has failed on the machine")
	}
	return wait(ReasonPlanFailed, "%s", m.Failure)
}

func isHeld(_ *view, m Machine) (Decision, bool) {
	switch m.Progress {
	case ProgressPaused:
		return wait(ReasonPlanPaused, "The plan is paused on the machine")
	case ProgressCanceled:
		return wait(ReasonPlanCanceled, "The plan was canceled on the machine")
	}
	return pass()
}

func hasNotCheckedIn(_ *view, m Machine) (Decision, bool) {
	if m.Progress != ProgressPending || m.CheckedIn {
		return pass()
	}
	return wait(ReasonWaitingForAgent, "Waiting for the agent to check in and take the machine's first plan")
}

func isPending(_ *view, m Machine) (Decision, bool) {
	if m.Progress != ProgressPending {
		return pass()
	}
	if m.Node.Unready() {
		return wait(ReasonWaitingForAgent, "Waiting for the agent to take the plan; the machine's Node is not ready, so look whether the machine is up")
	}
	return wait(ReasonWaitingForAgent, "Waiting for the agent to take the plan")
}

func isApplying(_ *view, m Machine) (Decision, bool) {
	if m.Progress != ProgressApplying {
		return pass()
	}
	if m.Doing != "" {
		return wait(ReasonApplyingPlan, "Waiting for the agent to apply the plan: %s", m.Doing)
	}
	return wait(ReasonApplyingPlan, "Waiting for the agent to apply the plan")
}

func isUnhealthy(_ *view, m Machine) (Decision, bool) {
	if len(m.Unhealthy) == 0 {
		return pass()
	}
	return wait(ReasonWaitingForProbes, "Waiting for probes: %s", strings.Join(m.Unhealthy, ", "))
}

// hasLostNode tells of a machine whose agent had nothing to complain of when it was last heard.
func hasLostNode(_ *view, m Machine) (Decision, bool) {
	if !m.Node.Unready() {
		return pass()
	}
	return wait(ReasonWaitingForNode, "Waiting for the machine's Node to be ready")
}

func hasOldKubelet(_ *view, m Machine) (Decision, bool) {
	if m.Version == "" || m.WantVersion == "" || sameKubernetes(m.Version, m.WantVersion) {
		return pass()
	}
	return wait(ReasonWaitingForKubelet, "Waiting for the kubelet to report %s; it reports %s", m.WantVersion, m.Version)
}

// sameKubernetes compares versions without their build: k3s and RKE2 do not always report it alike.
func sameKubernetes(a, b string) bool {
	a, _, _ = strings.Cut(a, "+")
	b, _, _ = strings.Cut(b, "+")
	return a == b
}
