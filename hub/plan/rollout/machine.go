// Package rollout decides which machines of a cluster get their new plan now, and why the others wait. It is pure: values in, values out,
// no client, no clock, no randomness. The message of a condition is the return value of the rule that decided.
//
// Decide evaluates the rules (rules.go) for each machine, one tier after the other (tier.go). Elect chooses the init node, JoinURL the
// server that a machine joins, and CheckRemoval the etcd member that may be removed.
package rollout

import (
	"slices"
	"time"
)

// Machine is the state of a machine that matters for a rollout. hub/plan/machinestate reads it from the machine's objects.
type Machine struct {
	// Name of the Machine object.
	Name string
	// ID is the machine's own ID, by which a cluster may designate its init node (label rke.cattle.io/machine-id).
	ID string

	// Etcd, ControlPlane and Worker are the machine's roles; more than one may be set.
	Etcd, ControlPlane, Worker bool

	// Created is when the Machine was created.
	Created time.Time
	// Deleting is set once the Machine or its RKEBootstrap is being deleted.
	Deleting bool
	// HasPlanSecret is set once the plan Secret exists.
	HasPlanSecret bool
	// PlanSecret is the name of the plan Secret, also before it exists.
	PlanSecret string
	// Provided is set for a machine that an infrastructure provider or a node driver makes: it registers by its bootstrap data.
	Provided bool
	// Unusable says why the machine cannot start or join a cluster yet, as a predicate ("has no infrastructure yet"); empty if it can.
	Unusable string
	// Init is set on the machine that is marked as the init node.
	Init bool

	// FailureDomain is that of the Machine; empty if its infrastructure has none.
	FailureDomain string

	// JoinURL is where others join this machine; empty until the machine was verified to work.
	JoinURL string
	// JoinedTo is the join URL in the machine's delivered plan.
	JoinedTo string

	// Problem says why no plan can be rendered for the machine; empty if one can.
	Problem string
	// Change is how the wanted plan differs from the delivered one.
	Change Change
	// Task is set where the wanted plan is the delivered one with the task of the operation that is in progress; Regardless where that is
	// delivered whatever the state of the cluster.
	Task, Regardless bool
	// LeftOut is set on a machine that is lost and that the operation in progress goes on without: it counts for no limit.
	LeftOut bool
	// Progress is the state of the delivered plan.
	Progress Progress
	// Underway is how the delivered plan differs from the one that was applied before, or what one does that it has replaced (Replaced),
	// whichever is worse; ChangeNone once it is applied.
	Underway Change
	// Failure is the message of the last failure, where Progress is ProgressFailed.
	Failure string
	// CheckedIn is set once the agent has reported anything.
	CheckedIn bool
	// Unhealthy are the probes of the delivered plan that the agent found unhealthy, HealthUnknown those that it has not run yet. Both are
	// sorted and disjoint.
	Unhealthy, HealthUnknown []string
	// ProbesPassed is set once all probes of the delivered plan were healthy at the same time.
	ProbesPassed bool
	// ProbesPassedAt is when ProbesPassed was set, on a server of RKE2 that a plan has restarted: see replacingPods. Zero on all others.
	ProbesPassedAt time.Time

	// AgentPhase is what the agent reports to be doing, such as "running instruction install (1 of 2)"; empty if it reports nothing.
	AgentPhase string

	// Version is the kubelet's version, empty until there is a Node; WantVersion is that of the specification.
	Version, WantVersion string

	// Node is the state of the machine's Node.
	Node NodeState
	// Membership is the machine's part in etcd, from its Node.
	Membership Membership
	// MemberHealth is what etcd's leader reports of the machine's member.
	MemberHealth MemberHealth
	// MemberCheckedAt is when it last did.
	MemberCheckedAt time.Time
	// EtcdProbe is what the machine's agent reports of etcd.
	EtcdProbe ProbeState
	// LastSeen is when the gateway last saw the agent; zero if never recorded.
	LastSeen time.Time
	// Removal is the state of the removal of the machine's etcd member.
	Removal Removal
	// Drain is the state of the machine's drain.
	Drain Drain
}

// findMachine returns the first machine for which a function is true; nil for none. A Machine is large, so that it is not copied.
func findMachine(machines []Machine, is func(*Machine) bool) *Machine {
	for i := range machines {
		if is(&machines[i]) {
			return &machines[i]
		}
	}
	return nil
}

func anyMachine(machines []Machine, is func(*Machine) bool) bool {
	return findMachine(machines, is) != nil
}

// Server reports whether the machine runs a server of the distribution.
func (m Machine) Server() bool { return m.Etcd || m.ControlPlane }

// Joinable reports whether others may join the machine. A new etcd member has to be a voter first, since a learner may drop out again; the
// init node is excepted, since nothing serves its cluster's API before.
func (m Machine) Joinable() bool {
	return !m.Deleting && (m.Membership == MemberVoter && (m.Node == NodeReady || m.Working()) || m.Working() && (!m.Etcd || m.Init))
}

// Working reports whether the machine has applied its delivered plan and was healthy with it.
func (m Machine) Working() bool {
	return m.Progress == ProgressApplied && (m.ProbesPassed || m.healthy())
}

// Change is how a wanted plan differs from the delivered one.
type Change string

// The kinds of changes.
const (
	// ChangeNone means that the plans are equal.
	ChangeNone Change = ""
	// ChangeFirst is the first plan of a machine.
	ChangeFirst Change = "first"
	// ChangeMinor restarts nothing and may be delivered at any time.
	ChangeMinor Change = "minor"
	// ChangeRestart restarts the distribution without an effect on workloads.
	ChangeRestart Change = "restart"
	// ChangeDrain restarts the distribution with an effect on workloads: the Node is drained first if the upgrade strategy says so.
	ChangeDrain Change = "drain"
)

// Disruptive reports whether the machine is unavailable during the change.
func (c Change) Disruptive() bool { return c == ChangeRestart || c == ChangeDrain }

// changes are in the order of what a machine goes through.
var changes = []Change{ChangeNone, ChangeMinor, ChangeRestart, ChangeDrain, ChangeFirst}

// Worst is the change with which a machine goes through more; of what is no change, the other.
func Worst(a, b Change) Change {
	if slices.Index(changes, a) < slices.Index(changes, b) {
		return b
	}
	return a
}

// Replaced is what the delivered plan does to the machine that another one is to replace before it is applied; empty where it restarts
// nothing. The agent may have begun it, and ends it first, also where the other one takes it back. So it is kept with the other plan.
func (m Machine) Replaced() Change {
	if m.Progress == ProgressApplied || !m.Underway.Disruptive() {
		return ChangeNone
	}
	return m.Underway
}
