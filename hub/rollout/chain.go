package rollout

import (
	"cmp"
	"fmt"
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
	// ReasonWaitingForInfrastructure is a machine's whose infrastructure is not there yet.
	ReasonWaitingForInfrastructure = "WaitingForInfrastructure"
	ReasonWaitingForInitNode       = "WaitingForInitNode"
	ReasonEtcdLost                 = "EtcdLost"
	ReasonWaitingForTurn           = "WaitingForTurn"
	ReasonWaitingForJoinURL        = "WaitingForJoinURL"
	ReasonWaitingForOthers         = "WaitingForOthers"
	ReasonWaitingForQuorum         = "WaitingForQuorum"
	ReasonWaitingForConnection     = "WaitingForConnection"
	ReasonDraining                 = "Draining"
	ReasonDrainFailed              = "DrainFailed"
	ReasonUncordoning              = "Uncordoning"
	ReasonPlanFailed               = "PlanFailed"
	ReasonPlanPaused               = "PlanPaused"
	ReasonPlanCanceled             = "PlanCanceled"
	ReasonWaitingForAgent          = "WaitingForAgent"
	ReasonApplyingPlan             = "ApplyingPlan"
	ReasonWaitingForProbes         = "WaitingForProbes"
	ReasonWaitingForNode           = "WaitingForNode"
	ReasonWaitingForKubelet        = "WaitingForKubelet"
)

// link is a question about a machine. It answers with a decision, or leaves it to the next link.
type link func(v *view, m Machine) (Decision, bool)

// chain is asked from the front; the first that decides wins. The first half says whether a change may be delivered, the second what
// becomes of the plan that was.
var chain = []link{
	isDeleting, lacksIdentity, lacksInfrastructure, hasProblem,
	isPaused, isBlocked, isMinor, isNotItsTurn, lacksJoinURL,
	mayStart, isSilent, waitsForEtcd, waitsForOthers, waitsForQuorum, waitsForDrain, mayChange,
	hasFailed, isHeld, hasNotCheckedIn, isPending, isApplying, isUnhealthy, hasLostNode, isDrained, hasOldKubelet,
}

func wait(reason, format string, args ...any) (Decision, bool) {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}, true
}

// waitForOthers is wait for what other machines have to do. message says so without their names and numbers, the format with them.
func waitForOthers(reason, message, format string, args ...any) (Decision, bool) {
	return Decision{Reason: reason, Message: message, Detail: fmt.Sprintf(format, args...)}, true
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

// blocked are the messages of machines where that of the cluster holds names of machines, or changes with each one that is registered.
var blocked = map[string]string{
	ReasonWaitingForMachines: "Waiting for machines of each role to be registered",
	ReasonWaitingForInitNode: "Waiting for an etcd machine that can start the cluster",
}

func isBlocked(v *view, m Machine) (Decision, bool) {
	if m.Change == ChangeNone || v.Blocked == (Wait{}) {
		return pass()
	}
	return waitForOthers(v.Blocked.Reason, cmp.Or(blocked[v.Blocked.Reason], v.Blocked.Message), "%s", v.Blocked.Message)
}

// isMinor lets a change pass at any time that restarts nothing.
func isMinor(_ *view, m Machine) (Decision, bool) {
	if m.Change != ChangeMinor {
		return pass()
	}
	return deliver("Delivering a change that needs no restart")
}
