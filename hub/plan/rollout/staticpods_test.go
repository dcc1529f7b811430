package rollout

import (
	"testing"
	"time"
)

// TestStaticPodsOfBefore: the probes of a server of RKE2 pass as soon as its kubelet has started, since etcd and API server from before the
// restart still answer. The next server is changed when they would have been found to be gone.
func TestStaticPodsOfBefore(t *testing.T) {
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	justNow, long := now.Add(-80*time.Second), now.Add(-90*time.Second)
	minor := func(next *Machine) { next.Change = ChangeMinor }
	notReady := func(next *Machine) { next.Node = NodeNotReady }
	both := func(next *Machine) { next.ProbesPassedAt = justNow }
	for _, tc := range []struct {
		name, roles string
		// passed is when the probes of the server that was changed have passed; zero with k3s.
		passed time.Time
		change func(next *Machine)
		want   bool
	}{
		{name: "a moment ago", roles: "ec", passed: justNow},
		{name: "long ago", roles: "ec", passed: long, want: true},
		{name: "k3s", roles: "ec", want: true},
		{name: "by a hub whose clock is a little ahead", roles: "ec", passed: now.Add(time.Second)},
		{name: "while the hub's clock was ahead", roles: "ec", passed: now.Add(time.Hour), want: true},
		{name: "without a network plugin", roles: "ec", passed: justNow, change: notReady},
		{name: "of both", roles: "ec", passed: justNow, change: both},
		{name: "a control plane node, a moment ago", roles: "c", passed: justNow},
		{name: "a control plane node, long ago", roles: "c", passed: long, want: true},
		{name: "a change that restarts nothing", roles: "ec", passed: justNow, change: minor, want: true},
	} {
		first, changed, next := member("a", "ec"), member("b", tc.roles), member("c", tc.roles)
		first.Init, next.Change = true, ChangeRestart
		changed.ProbesPassedAt = tc.passed
		if tc.change != nil {
			tc.change(&next)
		}
		d := Decide(Inputs{Now: now, Bootstrapped: true, Machines: []Machine{first, changed, next}}).Decisions
		if d[2].Deliver != tc.want {
			t.Errorf("%s: got %+v", tc.name, d[2])
		}
		if !d[0].Done || !d[1].Done {
			t.Errorf("%s: servers that have their plans wait: %+v", tc.name, d[:2])
		}
	}
}

// TestStaticPodsOfOneServer: a server does not wait for its own static Pods, and a new one not for those of others.
func TestStaticPodsOfOneServer(t *testing.T) {
	in := Inputs{Now: time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC), Bootstrapped: true, Machines: []Machine{member("a", "ecw")}}
	a := &in.Machines[0]
	a.Init, a.Change, a.ProbesPassedAt = true, ChangeRestart, in.Now
	if d := Decide(in).Decisions; !d[0].Deliver {
		t.Errorf("a server waits for itself: %+v", d[0])
	}
	a.Change = ChangeNone
	joining := fresh("b", "ec")
	joining.Node, joining.Membership = NodeAbsent, MemberNone
	in.Machines = append(in.Machines, joining)
	if d := Decide(in).Decisions; !d[1].Deliver {
		t.Errorf("a new server waits: %+v", d[1])
	}
}
