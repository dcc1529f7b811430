package rollout

import (
	"cmp"
	"fmt"
)

// The reasons of decisions, as in the condition Reconciled of a machine and the conditions of its cluster. They are API.
const (
	// ReasonUpToDate is that of a machine that has applied its plan and is healthy.
	ReasonUpToDate = "UpToDate"
	// ReasonDelivering is that of a machine whose plan is being written to its plan Secret.
	ReasonDelivering = "Delivering"
	// ReasonDeleting is that of a machine that is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonWaitingForIdentity is that of a machine without a plan Secret.
	ReasonWaitingForIdentity = "WaitingForIdentity"
	// ReasonPlanInvalid is that of a machine whose plan cannot be rendered.
	ReasonPlanInvalid = "PlanInvalid"
	// ReasonWaitingForMachines is that of a cluster in which no machine has one of the roles that it needs.
	ReasonWaitingForMachines = "WaitingForMachines"
	// ReasonWaitingForInfrastructure is that of a machine whose infrastructure is not provisioned yet.
	ReasonWaitingForInfrastructure = "WaitingForInfrastructure"
	// ReasonWaitingForInitNode is that of a machine that waits for the init node to start the cluster.
	ReasonWaitingForInitNode = "WaitingForInitNode"
	// ReasonEtcdLost is that of a cluster that has lost all machines with its data.
	ReasonEtcdLost = "EtcdLost"
	// ReasonWaitingForOperation is that of a machine that waits for an operation on the cluster, such as a snapshot, to end.
	ReasonWaitingForOperation = "WaitingForOperation"
	// ReasonRestoreFailed is that of a cluster whose machines were stopped for a restore that has failed, or that has the configuration of a
	// snapshot whose data was not restored.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonHubRestored is that of a cluster that was upgraded after the backup that the hub was restored from, or may have been.
	ReasonHubRestored = "HubRestored"
	// ReasonWaitingForTurn is that of a machine that waits for an earlier tier.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonWaitingForOthers is that of a machine that waits for machines of its tier or for other etcd members.
	ReasonWaitingForOthers = "WaitingForOthers"
	// ReasonWaitingForJoinURL is that of a machine that waits for a server that it can join.
	ReasonWaitingForJoinURL = "WaitingForJoinURL"
	// ReasonWaitingForQuorum is that of a machine with etcd whose change could lose the quorum.
	ReasonWaitingForQuorum = "WaitingForQuorum"
	// ReasonWaitingForConnection is that of a machine whose change needs the cluster's API, which the hub cannot reach.
	ReasonWaitingForConnection = "WaitingForConnection"
	// ReasonDraining is that of a machine whose Node is being drained.
	ReasonDraining = "Draining"
	// ReasonDrainFailed is that of a machine whose Node could not be drained or uncordoned; the hub retries.
	ReasonDrainFailed = "DrainFailed"
	// ReasonUncordoning is that of a machine whose Node is to be uncordoned after its change.
	ReasonUncordoning = "Uncordoning"
	// ReasonPlanFailed is that of a machine whose agent could not apply the plan.
	ReasonPlanFailed = "PlanFailed"
	// ReasonPlanPaused is that of a machine whose plan somebody other than the hub has paused.
	ReasonPlanPaused = "PlanPaused"
	// ReasonPlanCanceled is that of a machine whose plan somebody other than the hub has canceled.
	ReasonPlanCanceled = "PlanCanceled"
	// ReasonWaitingForAgent is that of a machine whose agent has not started to apply the plan, or was not seen.
	ReasonWaitingForAgent = "WaitingForAgent"
	// ReasonApplyingPlan is that of a machine whose agent is applying the plan.
	ReasonApplyingPlan = "ApplyingPlan"
	// ReasonWaitingForProbes is that of a machine that has applied the plan and is not healthy yet.
	ReasonWaitingForProbes = "WaitingForProbes"
	// ReasonWaitingForNode is that of a machine whose Node is not ready.
	ReasonWaitingForNode = "WaitingForNode"
	// ReasonWaitingForKubelet is that of a machine whose kubelet has another version than its plan.
	ReasonWaitingForKubelet = "WaitingForKubelet"
)

// rule is a question about a machine. It returns a decision, or leaves the machine to the next rule.
type rule func(v *view, m *Machine) (Decision, bool)

// rules are evaluated in this order; the first that decides wins:
//
//	rule                 decides for a machine                              decision
//	isDeleting           that is being deleted                              nothing is delivered
//	lacksPlanSecret      without a plan Secret                              wait
//	lacksInfrastructure  without infrastructure, before its first plan      wait
//	planInvalid          whose plan cannot be rendered                      wait for the specification
//	taskRegardless       with a task of an operation that waits for nothing deliver, uncordon
//	clusterBlocked       with a change in a cluster that lacks something    wait; uncordon, in a restored hub
//	changeIsMinor        whose change restarts nothing                      deliver
//	changeHeld           with a restart while restarts are held back        wait, mostly for an operation; uncordon
//	designatedTooLate    designated after another was to start the cluster  wait for that
//	earlierTierFirst     whose earlier tiers have to change first           wait
//	lacksJoinURL         that has nothing to join yet                       wait
//	firstPlan            that gets its first plan                           deliver; etcd members one at a time
//	agentMissing         with etcd, whose agent was not seen                wait for the agent
//	etcdBusy             with etcd, while another member changes            wait
//	groupLimitReached    whose group has no unavailable machine to spare    wait
//	quorumNeedsMachine   without which etcd loses its quorum                wait
//	needsDrain           that has to be drained first                       drain
//	changeIsDisruptive   with any other change                              deliver
//	verifyApplied        with an unfinished plan                            wait for agent, probes, Node
//	needsUncordon        that is drained still                              uncordon
//	kubeletOutdated      whose kubelet reports another version              wait
//
// A machine that no rule decides for is done. The rules after changeIsDisruptive see machines without a change only.
var rules = []rule{
	isDeleting, lacksPlanSecret, lacksInfrastructure, planInvalid,
	taskRegardless, clusterBlocked, changeIsMinor, changeHeld, designatedTooLate, earlierTierFirst, lacksJoinURL,
	firstPlan, agentMissing, etcdBusy, groupLimitReached, quorumNeedsMachine, needsDrain, changeIsDisruptive,
	verifyApplied, needsUncordon, kubeletOutdated,
}

func wait(reason, format string, args ...any) (Decision, bool) {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}, true
}

func waitIf(condition bool, reason, message string) (Decision, bool) {
	if !condition {
		return undecided()
	}
	return Decision{Reason: reason, Message: message}, true
}

// waitForOthers is a wait for other machines. message is without their names and numbers, detail with them: see Decision.
func waitForOthers(reason, message, detail string, args ...any) (Decision, bool) {
	return Decision{Reason: reason, Message: message, Detail: fmt.Sprintf(detail, args...)}, true
}

func deliver(message string) (Decision, bool) {
	return Decision{Deliver: true, Reason: ReasonDelivering, Message: message}, true
}

func undecided() (Decision, bool) { return Decision{}, false }

func isDeleting(_ *view, m *Machine) (Decision, bool) {
	return waitIf(m.Deleting, ReasonDeleting, "Machine is being deleted")
}

func lacksPlanSecret(_ *view, m *Machine) (Decision, bool) {
	if m.HasPlanSecret {
		return undecided()
	}
	return wait(ReasonWaitingForIdentity, "Waiting for plan Secret %s to be created", m.PlanSecret)
}

// lacksInfrastructure holds the first plan back until it can contain what the infrastructure knows of the machine. Nobody waits for such a
// machine, which may never come.
func lacksInfrastructure(_ *view, m *Machine) (Decision, bool) {
	if m.Change != ChangeFirst || m.Unusable == "" {
		return undecided()
	}
	return wait(ReasonWaitingForInfrastructure, "The machine %s", m.Unusable)
}

func planInvalid(_ *view, m *Machine) (Decision, bool) {
	if m.Problem == "" {
		return undecided()
	}
	return wait(ReasonPlanInvalid, "Rendering the plan failed: %s", m.Problem)
}

// blockedMessages replace those of the cluster that name machines, or change with each one that is registered.
var blockedMessages = map[string]string{
	ReasonWaitingForMachines: "Waiting for machines of each role to be registered",
	ReasonWaitingForInitNode: "Waiting for an etcd machine that can start the cluster",
}

// taskRegardless delivers the task of an operation for which the cluster is down, or is taken down: a restore. A drain ends with it, since
// the Node of the restored cluster was not drained.
func taskRegardless(_ *view, m *Machine) (Decision, bool) {
	if m.Change == ChangeNone || !m.Regardless {
		return undecided()
	}
	d, decided := deliver("Delivering a task of an operation")
	d.Uncordon = m.draining() && m.Drain.Uncordon != m.Drain.Requested
	return d, decided
}

// changeHeld lets a machine join that has no plan yet: no operation knows it. One that was drained for its change is uncordoned:
// the machines of the operation would wait for it, while it waits for the operation.
func changeHeld(v *view, m *Machine) (Decision, bool) {
	if !v.held(m) {
		return undecided()
	}
	if d, draining := needsUncordon(v, m); draining {
		return d, true
	}
	return wait(v.Hold.Reason, "%s", v.Hold.Message)
}

// clusterBlocked uncordons a machine that was drained for its change in the backup of a restored hub: the change may never come, and the
// drain was over long ago.
func clusterBlocked(v *view, m *Machine) (Decision, bool) {
	if m.Change == ChangeNone || v.Blocked == (Wait{}) {
		return undecided()
	}
	if v.Blocked.Reason == ReasonHubRestored {
		if d, draining := needsUncordon(v, m); draining {
			return d, true
		}
	}
	return waitForOthers(v.Blocked.Reason, cmp.Or(blockedMessages[v.Blocked.Reason], v.Blocked.Message), "%s", v.Blocked.Message)
}

func changeIsMinor(_ *view, m *Machine) (Decision, bool) {
	if m.Change != ChangeMinor {
		return undecided()
	}
	return deliver("Delivering a change that needs no restart")
}

// designatedTooLate says why a machine that is designated as init node does not start the cluster: see Elect. It could not join either,
// since there is no cluster yet.
func designatedTooLate(v *view, m *Machine) (Decision, bool) {
	late := m.Etcd && m.Change == ChangeFirst && !v.Bootstrapped && !m.Init && m.ID != "" && m.ID == v.Designated
	return waitIf(late, ReasonWaitingForInitNode,
		"Waiting for the first etcd node to start the cluster: it was given the plan for that before this machine was designated as init node")
}

// earlierTierFirst keeps the order of the tiers. A machine that is unwell, drained or changing already loses nothing by another change: a
// worker waits only where it would become newer than the servers, and a server not at all, since earlier machines may be waiting for it.
// A task of an operation does not wait for changes that wait for the operation.
func earlierTierFirst(v *view, m *Machine) (Decision, bool) {
	if m.Change == ChangeNone {
		return undecided()
	}
	nothingToLose := m.unwell() || m.draining() || m.changing()
	for t := range tierOf(m) {
		b := v.blocks[t]
		blocking := b.changes
		switch {
		case nothingToLose && m.Server():
			blocking = nil
		case m.Task:
			blocking = b.tasks
		case !m.joined():
			blocking = b.joins
		case nothingToLose:
			blocking = b.outdated
		}
		if len(blocking) == 0 {
			continue
		}
		title, failed := tiers[t].title, b.failedOf(blocking)
		if len(blocking) > 1 {
			title += "s"
		}
		return waitForOthers(ReasonWaitingForTurn, tiers[tierOf(m)].waiting, "Waiting for the %s %s to be ready first%s",
			title, joinNames(blocking), failed)
	}
	return undecided()
}

func lacksJoinURL(v *view, m *Machine) (Decision, bool) {
	switch {
	case m.Change == ChangeNone || m.Init || m.Server() && v.initJoinable || !m.Server() && v.serverJoinable:
		return undecided()
	case m.Server():
		return wait(ReasonWaitingForJoinURL, "Waiting for the first etcd node to have an address to join")
	}
	return wait(ReasonWaitingForJoinURL, "Waiting for a control plane node to have an address to join")
}
