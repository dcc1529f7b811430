package rollout

import (
	"fmt"
	"strings"
)

// The reasons of decisions, for conditions.
const (
	ReasonUpToDate           = "UpToDate"
	ReasonDelivering         = "Delivering"
	ReasonDeleting           = "Deleting"
	ReasonWaitingForIdentity = "WaitingForIdentity"
	ReasonPlanInvalid        = "PlanInvalid"
	ReasonPaused             = "Paused"
	ReasonWaitingForMachines = "WaitingForMachines"
	ReasonWaitingForInitNode = "WaitingForInitNode"
	ReasonEtcdLost           = "EtcdLost"
	ReasonWaitingForTurn     = "WaitingForTurn"
	ReasonWaitingForJoinURL  = "WaitingForJoinURL"
	// ReasonWaitingForInfrastructure is a machine's whose infrastructure is not there yet.
	ReasonWaitingForInfrastructure = "WaitingForInfrastructure"
	ReasonWaitingForOthers         = "WaitingForOthers"
	ReasonPlanFailed               = "PlanFailed"
	ReasonPlanPaused               = "PlanPaused"
	ReasonPlanCanceled             = "PlanCanceled"
	ReasonWaitingForAgent          = "WaitingForAgent"
	ReasonApplyingPlan             = "ApplyingPlan"
	ReasonWaitingForProbes         = "WaitingForProbes"
	ReasonWaitingForKubelet        = "WaitingForKubelet"
)

// link is a question about a machine. It answers with a decision, or leaves it to the next link.
type link func(v *view, m Machine) (Decision, bool)

// chain is asked from the front; the first that decides wins. The first half says whether a change may be delivered, the second what
// becomes of the plan that was.
var chain = []link{
	isDeleting, lacksIdentity, lacksInfrastructure, hasProblem,
	isPaused, isBlocked, isNotItsTurn, lacksJoinURL, mayStart, mayChangeAnyTime, mayChangeNow,
	hasFailed, isHeld, hasNotCheckedIn, isPending, isApplying, isUnhealthy, hasOldKubelet,
}

func wait(reason, format string, args ...any) (Decision, bool) {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}, true
}

func deliver(message string) (Decision, bool) {
	return Decision{Deliver: true, Reason: ReasonDelivering, Message: message}, true
}

func pass() (Decision, bool) { return Decision{}, false }

func isDeleting(_ *view, m Machine) (Decision, bool) {
	if !m.Deleting {
		return pass()
	}
	return wait(ReasonDeleting, "Is being deleted")
}

func lacksIdentity(_ *view, m Machine) (Decision, bool) {
	if m.Identity {
		return pass()
	}
	return wait(ReasonWaitingForIdentity, "Waiting for the machine's plan Secret to be made")
}

// lacksInfrastructure keeps the first plan back until what the infrastructure knows of the machine can be in it.
func lacksInfrastructure(_ *view, m Machine) (Decision, bool) {
	if m.Change != ChangeFirst || m.Unusable == "" {
		return pass()
	}
	return wait(ReasonWaitingForInfrastructure, "The machine %s", m.Unusable)
}

func hasProblem(_ *view, m Machine) (Decision, bool) {
	if m.Problem == "" {
		return pass()
	}
	return wait(ReasonPlanInvalid, "No plan can be made for the machine: %s", m.Problem)
}

func isPaused(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || !v.Paused {
		return pass()
	}
	return wait(ReasonPaused, "A change waits until the cluster is no longer paused")
}

func isBlocked(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || v.Blocked == (Wait{}) {
		return pass()
	}
	return wait(v.Blocked.Reason, "%s", v.Blocked.Message)
}

func isNotItsTurn(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || tierOf(m) <= v.turn {
		return pass()
	}
	title := tiers[v.turn].title
	if len(v.ahead) > 1 {
		title += "s"
	}
	return wait(ReasonWaitingForTurn, "Waiting for the %s %s to be ready first", title, list(v.ahead))
}

func lacksJoinURL(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || m.Init {
		return pass()
	}
	var servers []Machine
	for _, s := range v.Machines {
		if s.JoinURL != "" && !s.Deleting && (s.ControlPlane && !m.Server() || s.Init && m.Server()) {
			servers = append(servers, s)
		}
	}
	if len(servers) > 0 {
		return pass()
	}
	if m.Server() {
		return wait(ReasonWaitingForJoinURL, "Waiting for the address of the first etcd node, which the machine is to join")
	}
	return wait(ReasonWaitingForJoinURL, "Waiting for the address of a control plane node, which the machine is to join")
}

// mayStart lets etcd machines join one by one, since etcd takes in one new member at a time; all others may start at once.
func mayStart(v *view, m Machine) (Decision, bool) {
	if m.Change != ChangeFirst {
		return pass()
	}
	if m.Etcd && len(v.joining) > 0 {
		return wait(ReasonWaitingForOthers, "Waiting for %s to join: etcd takes in one new member at a time", list(v.joining))
	}
	return deliver("Delivering the machine's first plan")
}

func mayChangeAnyTime(_ *view, m Machine) (Decision, bool) {
	if m.Change != ChangeMinor {
		return pass()
	}
	return deliver("Delivering a change that needs no restart")
}

// mayChangeNow keeps enough machines of a tier at work. A machine that is unavailable itself loses nothing by a change, which may be
// what heals it.
func mayChangeNow(v *view, m Machine) (Decision, bool) {
	if !m.Change.Disruptive() {
		return pass()
	}
	t := tiers[tierOf(m)]
	machines := 0
	for _, other := range v.Machines {
		if t.has(other) && !other.Deleting {
			machines++
		}
	}
	n := allowed(t.concurrency(v.Inputs), machines)
	if len(v.updating) < n {
		return deliver("Delivering a change")
	}
	return wait(ReasonWaitingForOthers, "A change waits for %s: at most %d of %d %ss may be unavailable at a time",
		list(v.updating), n, machines, t.title)
}

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
	return wait(ReasonWaitingForAgent, "Waiting for the agent to take the plan")
}

func isApplying(_ *view, m Machine) (Decision, bool) {
	if m.Progress != ProgressApplying {
		return pass()
	}
	return wait(ReasonApplyingPlan, "Waiting for the agent to apply the plan")
}

func isUnhealthy(_ *view, m Machine) (Decision, bool) {
	if len(m.Unhealthy) == 0 {
		return pass()
	}
	return wait(ReasonWaitingForProbes, "Waiting for probes: %s", strings.Join(m.Unhealthy, ", "))
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
