// Package agentupgrade decides which system-agents of a cluster are upgraded now. It is pure: it reads and writes nothing, and knows
// neither Secrets nor conditions.
package agentupgrade

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/plans"
)

// Inputs are what is known of a cluster.
type Inputs struct {
	// Generation is the upgrade that is requested, greater than 0.
	Generation int64
	// Checksums are those of the agents that this hub hands out, by architecture.
	Checksums map[string]string
	// ControlPlaneConcurrency and WorkerConcurrency are as in the cluster's upgrade strategy: a number, a percentage, or empty for 1.
	ControlPlaneConcurrency, WorkerConcurrency string
	// Machines are those of the cluster that are not being deleted.
	Machines []Machine
}

// Machine is one machine.
type Machine struct {
	// Name is that of the Machine.
	Name string
	// Server is true for a machine with etcd or a control plane.
	Server bool
	// Asked is true if the agent was asked for its version or for an upgrade.
	Asked bool
	// Awaited is true if the agent was asked a moment ago and may answer any time now. Workers wait for the answers of servers.
	Awaited bool
	// Requested is the upgrade that this hub has signed for the machine; the zero value for none.
	Requested plans.AgentUpgrade
	// Reported is what the agent has reported; nil for nothing.
	Reported *plans.AgentStatus
}

// Action is what is to be done for a machine.
type Action int

const (
	// None is nothing.
	None Action = iota
	// Ask asks the agent for its version, so that agents which do not know upgrades are found.
	Ask
	// Request requests the upgrade from the agent.
	Request
)

// State is where a machine stands. Its values are reasons of the condition of the machine.
type State string

const (
	// NotReported is an agent that does not know upgrades, or has not answered yet.
	NotReported State = "NotReported"
	// Waiting is an agent that waits for others.
	Waiting State = "Waiting"
	// Upgrading is an agent that was asked for the upgrade and has neither succeeded nor failed.
	Upgrading State = "Upgrading"
	// Upgraded is an agent that has succeeded.
	Upgraded State = "Upgraded"
	// RolledBack is an agent that runs again because its successor has failed.
	RolledBack State = "RolledBack"
	// Refused is an agent that the hub cannot upgrade.
	Refused State = "Refused"
)

// Status is the status of the condition: False where somebody has to act, and Unknown where the hub waits.
func (s State) Status() metav1.ConditionStatus {
	switch s {
	case Upgraded:
		return metav1.ConditionTrue
	case RolledBack, Refused:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// Decision is the decision about one machine.
type Decision struct {
	// Action is what is to be done.
	Action Action
	// State is where the machine stands, once that is done.
	State State
	// Message says more, for people.
	Message string
	// Awaited is true for an agent that was asked for its version a moment ago, or is asked now.
	Awaited bool
}

const waitingForAgent = "Waiting for the agent"

// Decide decides about all machines, in their order. Servers come first; workers wait until all servers have been upgraded. A machine whose
// upgrade has failed counts as one that is being upgraded, so that the upgrade stops when as many have failed as may be upgraded at a time.
func Decide(in Inputs) []Decision {
	decisions := make([]Decision, len(in.Machines))
	for i := range in.Machines {
		decisions[i] = stateOf(in, in.Machines[i])
	}
	serversDone := true
	for _, server := range []bool{true, false} {
		members := group(in, server)
		admit(in, decisions, members, limit(in, server, len(members)), serversDone)
		serversDone = !slices.ContainsFunc(members, func(i int) bool {
			return decisions[i].State == Waiting || decisions[i].Awaited || occupies(decisions[i].State)
		})
	}
	return decisions
}

// admit decides which of the members of a group that wait are upgraded now. An agent that is busy with an earlier request has its place.
func admit(in Inputs, decisions []Decision, members []int, free int, serversDone bool) {
	for _, i := range members {
		if occupies(decisions[i].State) || in.Machines[i].busy() && decisions[i].State == Waiting {
			free--
		}
	}
	for _, i := range members {
		d, busy := &decisions[i], in.Machines[i].busy()
		switch {
		case d.State != Waiting:
		case len(in.Checksums) == 0:
			d.Message = "Waiting for agents in the assets directory of the hub (--assets-dir)"
		case !in.Machines[i].Server && !serversDone:
			d.Message = "Waiting for the agents of etcd and control plane nodes"
		case free <= 0 && !busy:
			d.Message = "Waiting for other agents: upgradeStrategy limits how many are upgraded at a time"
		default:
			if !busy {
				free--
			}
			*d = Decision{Action: Request, State: Upgrading, Message: waitingForAgent}
		}
	}
}

// group returns the indices of the servers or of the workers, by the names of the machines.
func group(in Inputs, server bool) []int {
	var members []int
	for i := range in.Machines {
		if in.Machines[i].Server == server {
			members = append(members, i)
		}
	}
	slices.SortFunc(members, func(a, b int) int { return cmp.Compare(in.Machines[a].Name, in.Machines[b].Name) })
	return members
}

func limit(in Inputs, server bool, machines int) int {
	if server {
		return rollout.MaxUnavailable(in.ControlPlaneConcurrency, machines)
	}
	return rollout.MaxUnavailable(in.WorkerConcurrency, machines)
}

// busy reports whether the agent was asked for an upgrade and has not answered how it ended.
func (m Machine) busy() bool {
	if len(m.Requested.Checksums) == 0 {
		return false
	}
	if m.Reported == nil || m.Reported.Generation != m.Requested.Generation {
		return true
	}
	switch m.Reported.Phase {
	case plans.UpgradeDone, plans.UpgradeRolledBack, plans.UpgradeRefused:
		return false
	}
	return true
}

// occupies reports whether a machine counts against the limit.
func occupies(s State) bool { return s == Upgrading || s == RolledBack }

// stateOf is the decision about a machine without regard to others: Waiting if it may be upgraded.
func stateOf(in Inputs, m Machine) Decision {
	if m.Reported == nil {
		d := Decision{State: NotReported, Awaited: m.Awaited || !m.Asked, Message: "Agent has reported no version: it is offline, " +
			"or older than upgrades by the hub, or of another project; upgrade it with the install script"}
		if !m.Asked {
			d.Action = Ask
		}
		return d
	}
	if m.Requested.Generation < in.Generation {
		return Decision{State: Waiting}
	}
	if m.Reported.Generation == m.Requested.Generation {
		text := m.Reported.Message
		switch m.Reported.Phase {
		case plans.UpgradeDone:
			return Decision{State: Upgraded, Message: "Version " + m.Reported.Version}
		case plans.UpgradeRolledBack:
			return Decision{State: RolledBack, Message: "Version " + m.Reported.Version + " runs again: " + text}
		case plans.UpgradeRefused:
			return Decision{State: Refused, Message: text}
		}
		if text != "" {
			return renewed(in, m, Decision{State: Upgrading, Message: text})
		}
	}
	return renewed(in, m, Decision{State: Upgrading, Message: waitingForAgent})
}

// renewed requests the upgrade again if this hub hands out other agents by now than those that were requested.
func renewed(in Inputs, m Machine, d Decision) Decision {
	if len(in.Checksums) > 0 && !maps.Equal(in.Checksums, m.Requested.Checksums) {
		d.Action = Request
	}
	return d
}

// Summary sums up the decisions for the condition of the cluster. It is Unknown while agents are being upgraded.
func Summary(in Inputs, decisions []Decision) (status metav1.ConditionStatus, reason, text string) {
	byState, byVersion := map[State][]string{}, map[string]int{}
	for i, d := range decisions {
		byState[d.State] = append(byState[d.State], in.Machines[i].Name)
		if reported := in.Machines[i].Reported; reported != nil {
			byVersion[message.Bound(reported.Version, maxVersion)]++
		}
	}
	parts := []string{fmt.Sprintf("%d of %d agents upgraded", len(byState[Upgraded]), len(decisions))}
	for _, list := range []struct {
		state State
		text  string
	}{
		{RolledBack, "rolled back"}, {Upgrading, "upgrading"}, {Waiting, "waiting"}, {Refused, "refused"},
		{NotReported, "without a reported version"},
	} {
		if names := byState[list.state]; len(names) > 0 {
			slices.Sort(names)
			parts = append(parts, list.text+": "+message.JoinNames(names, maxNames))
		}
	}
	if len(byVersion) > 0 {
		var versions []string
		for _, version := range slices.Sorted(maps.Keys(byVersion)) {
			versions = append(versions, fmt.Sprintf("%s (%d)", version, byVersion[version]))
		}
		parts = append(parts, "versions: "+message.JoinNames(versions, maxNames))
	}
	awaited := slices.ContainsFunc(decisions, func(d Decision) bool { return d.Awaited })
	reason = summaryReason(in, byState, awaited)
	if reason == "Paused" {
		parts = append(parts, "paused because of failures; correct them and increase spec.redeploySystemAgentGeneration")
	}
	status = metav1.ConditionFalse
	switch reason {
	case string(Upgraded):
		status = metav1.ConditionTrue
	case string(Upgrading):
		status = metav1.ConditionUnknown
	}
	return status, reason, strings.Join(parts, "; ")
}

const (
	// maxNames is how many machines or versions a message lists.
	maxNames = 5
	// maxVersion bounds a version that an agent has reported.
	maxVersion = 64
)

func summaryReason(in Inputs, byState map[State][]string, awaited bool) string {
	switch {
	case len(byState[Waiting]) > 0 && len(in.Checksums) == 0:
		return "NoAgents"
	case len(byState[Upgrading]) > 0 || awaited:
		return string(Upgrading)
	case len(byState[Waiting]) > 0:
		return "Paused"
	case len(byState[RolledBack]) > 0:
		return "Failed"
	case len(byState[Refused])+len(byState[NotReported]) > 0:
		return "PartlyUpgraded"
	}
	return string(Upgraded)
}
