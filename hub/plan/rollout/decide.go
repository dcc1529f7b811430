package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Inputs is the state of a cluster that decisions are made on.
type Inputs struct {
	// Now is the time of the decision: reports about etcd expire.
	Now time.Time
	// Machines are all machines of the cluster, in any order.
	Machines []Machine
	// OrphanedMembers are the members of etcd that have no Machine.
	OrphanedMembers []Member
	// Bootstrapped is set once the cluster has been started.
	Bootstrapped bool
	// Designated is the ID of the machine that is designated as init node; empty for none.
	Designated string
	// Hold says why nothing that restarts machines may be delivered, such as an operation that is in progress; zero if it may.
	Hold Wait
	// Blocked says why nothing may be delivered to any machine; zero if it may.
	Blocked Wait
	// ControlPlaneConcurrency and WorkerConcurrency are as in the cluster's upgrade strategy: a number, a percentage, or empty for 1.
	ControlPlaneConcurrency, WorkerConcurrency string
	// ControlPlaneDrain and WorkerDrain are how servers and workers are drained.
	ControlPlaneDrain, WorkerDrain DrainOptions
}

// Wait is why something is not done yet, for a condition; the zero value waits for nothing.
type Wait struct {
	// Reason is the CamelCase reason of the condition; empty for nothing to wait for.
	Reason string
	// Message is the message of the condition.
	Message string
}

// Decision is what happens to a machine now.
type Decision struct {
	// Machine is its name.
	Machine string
	// Deliver is set when the wanted plan is to be delivered now. Where the machine has etcd and the change is disruptive, the caller makes
	// sure first that the inputs include its own last writes.
	Deliver bool
	// Drain are the options to request a drain with; empty if none is to be requested. A drain with other options is replaced.
	Drain string
	// Uncordon is set when the end of the drain is to be requested, perhaps with a delivery.
	Uncordon bool
	// Done is set when the machine has what is wanted and works.
	Done bool
	// Reason and Message say what is done or waited for. They are about this machine only, and stay the same while it waits for the same
	// thing: each change of a message is a write, and a thousand machines may wait for one.
	Reason, Message string
	// Detail is Message with the names and numbers of other machines, for the condition of the cluster; empty where Message says all.
	Detail string
}

// Outcome is what happens to a cluster now.
type Outcome struct {
	// Decisions are in the order of the machines' names.
	Decisions []Decision
	// Done is set when every machine that is not being deleted is done.
	Done bool
	// Wait is what the cluster as a whole waits for; zero when it is done.
	Wait Wait
}

// sortedByName returns the machines in the order of their names. It copies only those that are not in that order: a Machine is large, and a
// reconcile hands the same ones to Elect and Decide.
func sortedByName(machines []Machine) []Machine {
	sorted := true
	for i := 1; i < len(machines) && sorted; i++ {
		sorted = machines[i-1].Name <= machines[i].Name
	}
	if sorted {
		return machines
	}
	order := make([]*Machine, len(machines))
	for i := range machines {
		order[i] = &machines[i]
	}
	slices.SortFunc(order, func(a, b *Machine) int { return strings.Compare(a.Name, b.Name) })
	byName := make([]Machine, len(machines))
	for i, m := range order {
		byName[i] = *m
	}
	return byName
}

// Decide decides about every machine. The order of the inputs does not matter.
func Decide(in Inputs) Outcome { return decide(in, rules) }

func decide(in Inputs, rules []rule) Outcome {
	in.Machines = sortedByName(in.Machines)
	v := newView(in)
	out := Outcome{Decisions: make([]Decision, len(in.Machines))}
	tierOfEach := make([]int, len(in.Machines))
	for i := range in.Machines {
		tierOfEach[i] = tierOf(&in.Machines[i])
	}
	// Each tier before the next, which may have to wait for it.
	for t := range tiers {
		var pending []int
		for i := range in.Machines {
			if tierOfEach[i] != t {
				continue
			}
			m := &in.Machines[i]
			d := v.decide(m, rules)
			out.Decisions[i] = d
			v.record(t, m, d)
			if !d.Done && !m.Deleting {
				pending = append(pending, i)
			}
		}
		if len(pending) > 0 && out.Wait == (Wait{}) {
			out.Wait = summarize(t, pending, out.Decisions)
		}
	}
	if v.Blocked != (Wait{}) {
		out.Wait = v.Blocked
	}
	if out.Wait == (Wait{}) {
		out.Wait = missingRoles(in)
	}
	out.Done = out.Wait == (Wait{})
	return out
}

func (v *view) decide(m *Machine, rules []rule) Decision {
	for _, rule := range rules {
		if d, decided := rule(v, m); decided {
			d.Machine = m.Name
			return d
		}
	}
	return Decision{Machine: m.Name, Done: true, Reason: ReasonUpToDate, Message: "Plan applied, all probes healthy"}
}

// summarize is what a tier waits for, in one line: that of the machine that comes first by stages, and of those by name. While machines of
// a pool are made one after the other, the reason of the cluster then stays the same.
func summarize(t int, pending []int, decisions []Decision) Wait {
	title, pendingNames, first := tiers[t].title, make([]string, 0, len(pending)), pending[0]
	for _, i := range pending {
		pendingNames = append(pendingNames, decisions[i].Machine)
		if stageOf(decisions[i].Reason) < stageOf(decisions[first].Reason) {
			first = i
		}
	}
	d := decisions[first]
	detail := cmp.Or(d.Detail, d.Message)
	if len(pendingNames) > 1 {
		title += "s"
		detail = d.Machine + ": " + detail
	}
	return Wait{Reason: d.Reason, Message: fmt.Sprintf("Configuring %s %s: %s", title, joinNames(pendingNames), detail)}
}

// stages is the order in which the reasons of machines become that of their cluster: what a user has to see to, anything else that is not
// listed, and what a machine goes through once it may have its plan, from the first to the last; but the infrastructure, which takes
// longest, is before the identity. What a machine says that only waits for another one says least.
var stages = []string{
	ReasonPlanFailed, ReasonPlanInvalid, ReasonPlanCanceled, ReasonDrainFailed, anyOther,
	ReasonWaitingForInfrastructure, ReasonWaitingForIdentity, ReasonDraining, ReasonDelivering, ReasonWaitingForAgent, ReasonApplyingPlan,
	ReasonWaitingForProbes, ReasonWaitingForNode, ReasonUncordoning, ReasonWaitingForKubelet,
	ReasonWaitingForOperation, ReasonWaitingForOthers, ReasonWaitingForTurn,
}

const anyOther = ""

// stageOf returns the index of a reason in stages.
func stageOf(reason string) int {
	if i := slices.Index(stages, reason); i >= 0 {
		return i
	}
	return slices.Index(stages, anyOther)
}
