package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Inputs is what a cluster's decisions are made of.
type Inputs struct {
	// Now is when the decision is made: what is known of etcd has an age.
	Now time.Time
	// Machines are all machines of the cluster.
	Machines []Machine
	// Strangers are the members of etcd that have no Machine.
	Strangers []Member
	// Bootstrapped is set once the cluster has been started.
	Bootstrapped bool
	// Paused is set while nothing may change.
	Paused bool
	// Blocked says why nothing may be delivered to any machine; empty if it may.
	Blocked Wait
	// ControlPlaneConcurrency and WorkerConcurrency are as in the cluster's upgrade strategy.
	ControlPlaneConcurrency, WorkerConcurrency string
	// ControlPlaneDrain and WorkerDrain are how servers and workers are drained.
	ControlPlaneDrain, WorkerDrain DrainOptions
}

// Wait is a reason and a message; the zero value waits for nothing.
type Wait struct {
	Reason, Message string
}

// Decision is what happens to a machine now.
type Decision struct {
	Machine string
	// Deliver is set when the wanted plan is to be delivered now. It was decided on what is known now: where the machine has etcd and the
	// change is disruptive, the caller makes sure that it has seen its own last writes.
	Deliver bool
	// Drain are the options to ask for a drain with; empty if none is to be asked for. A drain with other options is replaced.
	Drain string
	// Uncordon is set when the end of the drain is to be asked for, with the options that the drain was asked for with.
	Uncordon bool
	// Done is set when the machine has what is wanted and works.
	Done bool
	// Reason and Message say what is done or waited for. They speak of this machine only, and stay the same while it waits for the same thing:
	// each change of a message is written to the API server, and a thousand machines may wait for one.
	Reason, Message string
	// Detail is Message with the names and numbers of other machines, which the condition of the cluster shows; empty where Message says all.
	Detail string
}

// Outcome is what happens to a cluster now.
type Outcome struct {
	// Decisions are in the order of the machines' names.
	Decisions []Decision
	// Done is set when every machine that stays is done.
	Done bool
	// Wait says what the cluster as a whole waits for; zero when it is done.
	Wait Wait
}

// Decide looks at every machine. Machines in any order give the same outcome.
func Decide(in Inputs) Outcome {
	in.Machines = slices.SortedFunc(slices.Values(in.Machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	v := newView(in)
	out := Outcome{Decisions: make([]Decision, len(in.Machines))}
	// A tier is looked at before the next, which may have to wait for it.
	for t := range tiers {
		var undone []int
		for i, m := range in.Machines {
			if tierOf(m) != t {
				continue
			}
			d := v.decide(m)
			out.Decisions[i] = d
			v.began(m, d)
			v.hold(t, m)
			if !d.Done && !m.Deleting {
				undone = append(undone, i)
			}
		}
		if len(undone) > 0 && out.Wait == (Wait{}) {
			out.Wait = summary(t, undone, out.Decisions)
		}
	}
	if v.Blocked != (Wait{}) {
		out.Wait = v.Blocked
	}
	if out.Wait == (Wait{}) {
		out.Wait = sane(in)
	}
	out.Done = out.Wait == (Wait{})
	return out
}

func (v *view) decide(m Machine) Decision {
	for _, link := range chain {
		if d, decided := link(v, m); decided {
			d.Machine = m.Name
			return d
		}
	}
	return Decision{Machine: m.Name, Done: true, Reason: ReasonUpToDate, Message: "Has its plan applied and is healthy"}
}

// summary says in one line what a tier waits for: what its first machine does that does not wait for another.
func summary(t int, undone []int, decisions []Decision) Wait {
	title, names, first := tiers[t].title, make([]string, 0, len(undone)), -1
	for _, i := range undone {
		names = append(names, decisions[i].Machine)
		if first < 0 && decisions[i].Reason != ReasonWaitingForOthers && decisions[i].Reason != ReasonWaitingForTurn {
			first = i
		}
	}
	if first < 0 {
		first = undone[0]
	}
	d := decisions[first]
	detail := cmp.Or(d.Detail, d.Message)
	if len(names) > 1 {
		title += "s"
		detail = d.Machine + ": " + detail
	}
	return Wait{Reason: d.Reason, Message: fmt.Sprintf("Configuring %s %s: %s", title, list(names), detail)}
}
