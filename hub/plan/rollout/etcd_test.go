package rollout

import (
	"slices"
	"testing"
	"time"
)

// TestFailedMembersDoNotWaitForEachOther: of two members of etcd whose plans have failed, one of them that of a machine that has joined
// with it, each gets the plan that corrects it, one after the other. A member that was not changed waits for both.
func TestFailedMembersDoNotWaitForEachOther(t *testing.T) {
	failed := func(name string, underway Change) Machine {
		m := member(name, "ec")
		m.Progress, m.Underway, m.ProbesPassed, m.Change = ProgressFailed, underway, false, ChangeRestart
		return m
	}
	delivered := func(machines ...Machine) (names []string) {
		machines[0].Init = true
		now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
		for _, d := range Decide(Inputs{Now: now, Bootstrapped: true, Machines: machines}).Decisions {
			if d.Deliver {
				names = append(names, d.Machine)
			}
		}
		return names
	}
	for _, underway := range []Change{ChangeRestart, ChangeFirst} {
		a, b, c := failed("a", ChangeRestart), failed("b", underway), member("c", "ec")
		if got := delivered(a, b); len(got) != 1 || got[0] != "a" {
			t.Errorf("%s: %v get their plans, want a", underway, got)
		}
		if got := delivered(a, b, c); len(got) != 1 || got[0] != "a" {
			t.Errorf("%s: %v of three get their plans, want a", underway, got)
		}
		a.Progress, a.Change = ProgressApplying, ChangeNone
		if got := delivered(a, b, c); len(got) != 0 {
			t.Errorf("%s: %v get their plans while a restarts", underway, got)
		}
		a.Progress, a.Underway, a.ProbesPassed = ProgressApplied, ChangeNone, true
		if got := delivered(a, b, c); len(got) != 1 || got[0] != "b" {
			t.Errorf("%s: %v get their plans, want b", underway, got)
		}
		a.Change = ChangeRestart
		if got := delivered(a, b); len(got) == 0 || got[0] == "a" {
			t.Errorf("%s: %v get their plans, want b", underway, got)
		}
	}
}

// TestJoiningMemberDoesNotWaitForADrainedOne: a machine that is joining etcd gets the plan that corrects its first one although another is
// drained for a change, which waits for it.
func TestJoiningMemberDoesNotWaitForADrainedOne(t *testing.T) {
	a, x := member("a", "ec"), fresh("x", "ec")
	a.Init, a.Change, a.Drain = true, ChangeDrain, Drain{Requested: "drain", Done: "drain"}
	x.Progress, x.Underway, x.Change = ProgressApplying, ChangeFirst, ChangeRestart
	x.Node, x.Membership, x.JoinedTo = NodeAbsent, MemberNone, a.JoinURL
	in := Inputs{Now: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC), Bootstrapped: true, Machines: []Machine{a, x},
		ControlPlaneDrain: DrainOptions{Enabled: true, Options: "drain"}}
	if d := Decide(in).Decisions; d[0].Deliver || !d[1].Deliver {
		t.Errorf("got %+v", d)
	}
	x = fresh("x", "ec")
	x.Node, x.Membership = NodeAbsent, MemberNone
	in.Machines[1] = x
	if d := Decide(in).Decisions; !d[0].Deliver || d[1].Deliver {
		t.Errorf("a new machine: got %+v", d)
	}
}

// TestJoiningMembersDoNotWaitForEachOther: of two new machines whose first plan failed, and which were given a check without an
// installation instead of it, one gets the plan that it needs to join, and then the other.
func TestJoiningMembersDoNotWaitForEachOther(t *testing.T) {
	a, b := member("a", "ec"), member("b", "ec")
	a.Init = true
	checked := func(name string) Machine {
		m := fresh(name, "ec")
		m.Progress, m.CheckedIn, m.Change = ProgressApplied, true, ChangeDrain
		m.Node, m.Membership, m.JoinedTo = NodeAbsent, MemberNone, a.JoinURL
		m.Unhealthy, m.EtcdProbe = []string{"etcd"}, ProbeUnhealthy
		return m
	}
	x, y, z := checked("x"), checked("y"), fresh("z", "ec")
	in := Inputs{Now: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC), Bootstrapped: true, Machines: []Machine{a, b, x, y, z}}
	if d := Decide(in).Decisions; !d[2].Deliver || d[3].Deliver || d[4].Deliver {
		t.Errorf("got %+v", d)
	}
	x.Change, x.Progress, x.Underway = ChangeNone, ProgressApplying, ChangeDrain
	in.Machines[2] = x
	if d := Decide(in).Decisions; d[3].Deliver || d[4].Deliver {
		t.Errorf("while x joins: got %+v", d)
	}
	x = member("x", "ec")
	in.Machines[2] = x
	if d := Decide(in).Decisions; !d[3].Deliver || d[4].Deliver {
		t.Errorf("x has joined: got %+v", d)
	}
}

// TestFailedFirstPlanMayVote: a new server may have joined etcd, and vote, before its Node is seen. While its first plan fails, it counts
// as a voter that is down; a cluster of one or two members does not wait for it, since what corrects it may be a change of theirs.
func TestFailedFirstPlanMayVote(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	x := fresh("x", "ec")
	x.Change, x.Progress, x.Underway, x.Node, x.Membership = ChangeNone, ProgressFailed, ChangeFirst, NodeAbsent, MemberNone
	delivered := func(x Machine, names ...string) bool {
		machines := []Machine{x}
		for _, name := range names {
			machines = append(machines, member(name, "ec"))
		}
		machines[1].Init, machines[1].Change = true, ChangeRestart
		machines[0].JoinedTo = machines[1].JoinURL
		decisions := Decide(Inputs{Now: now, Bootstrapped: true, Machines: machines}).Decisions
		i := slices.IndexFunc(decisions, func(d Decision) bool { return d.Machine == "a" })
		t.Log(decisions[i].Message)
		return decisions[i].Deliver
	}
	tests := []struct {
		name    string
		change  func(*Machine)
		members []string
		want    bool
	}{
		{"one member", nil, []string{"a"}, true},
		{"two members", nil, []string{"a", "b"}, true},
		{"three members", nil, []string{"a", "b", "c"}, false},
		{"four members", nil, []string{"a", "b", "c", "d"}, true},
		{"it is being deleted", func(m *Machine) { m.Deleting = true }, []string{"a", "b", "c"}, true},
		{"it has no etcd", func(m *Machine) { m.Etcd = false }, []string{"a", "b", "c"}, true},
		{"it has its Node, and is no member", func(m *Machine) { m.Node = NodeNotReady }, []string{"a", "b", "c"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			x := x
			if test.change != nil {
				test.change(&x)
			}
			if got := delivered(x, test.members...); got != test.want {
				t.Errorf("the change of a is delivered: %t, want %t", got, test.want)
			}
		})
	}
}
