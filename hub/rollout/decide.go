package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// Inputs is what a cluster's decisions are made of.
type Inputs struct {
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
	// Reason and Message say what is done or waited for.
	Reason, Message string
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
	v := view{Inputs: in, turn: len(tiers)}
	if wait := sane(in); wait != (Wait{}) && v.Blocked.Reason != ReasonEtcdLost {
		v.Blocked = wait
	}
	out := Outcome{Decisions: make([]Decision, len(in.Machines))}
	// A tier is looked at before the next, since the next one's turn comes when it is done.
	for t := range tiers {
		ahead, undone := v.decideTier(t, out.Decisions)
		if len(ahead) > 0 && v.turn == len(tiers) {
			v.turn, v.ahead = t, ahead
		}
		if len(undone) > 0 && out.Wait == (Wait{}) {
			out.Wait = summary(t, undone, out.Decisions, in.Machines)
		}
	}
	if v.Blocked != (Wait{}) {
		out.Wait = v.Blocked
	}
	out.Done = out.Wait == (Wait{})
	return out
}

// view is what the links of the chain see.
type view struct {
	Inputs
	// turn is the first tier that is not done, as far as it is known; the number of tiers if none.
	turn int
	// ahead are the machines of that tier that are not done.
	ahead []string
	// updating are the machines of the machine's tier, itself left out, that are unavailable or become so in this very pass; joining are
	// those of them that are on their way into the cluster.
	updating, joining []string
}

// decideTier decides about the machines of a tier. It returns the names of those that are not done, and of those among them that hold up
// the next tier: a machine that does not even have a plan Secret may never come and holds up nobody.
func (v *view) decideTier(t int, decisions []Decision) (ahead, undone []string) {
	var started []string
	for i, m := range v.Machines {
		if tierOf(m) != t {
			continue
		}
		v.updating, v.joining = slices.Clone(started), slices.Clone(started)
		for _, other := range v.Machines {
			if tierOf(other) != t || other.Name == m.Name || other.Deleting || other.Change == ChangeFirst || slices.Contains(started, other.Name) {
				continue
			}
			if other.unavailable() {
				v.updating = append(v.updating, other.Name)
			}
			if other.joining() {
				v.joining = append(v.joining, other.Name)
			}
		}
		d := v.decide(m)
		decisions[i] = d
		if d.Deliver && m.Change != ChangeMinor {
			started = append(started, m.Name)
		}
		if d.Done || m.Deleting {
			continue
		}
		undone = append(undone, m.Name)
		if m.Identity {
			ahead = append(ahead, m.Name)
		}
	}
	return ahead, undone
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

// summary says in one line what a tier waits for.
func summary(t int, pending []string, decisions []Decision, machines []Machine) Wait {
	title := tiers[t].title
	if len(pending) > 1 {
		title += "s"
	}
	first := slices.IndexFunc(machines, func(m Machine) bool { return m.Name == pending[0] })
	d := decisions[first]
	detail := d.Message
	if len(pending) > 1 {
		detail = pending[0] + ": " + detail
	}
	return Wait{Reason: d.Reason, Message: fmt.Sprintf("Configuring %s %s: %s", title, list(pending), detail)}
}
