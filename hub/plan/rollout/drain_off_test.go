package rollout

import "testing"

// TestDrainSwitchedOff: a drain that the upgrade strategy no longer asks for, such as one that a disruption budget blocks, ends before the
// change is delivered: Pods would be evicted until the machine is healthy with it. One that is done ends after the change, as any other.
func TestDrainSwitchedOff(t *testing.T) {
	requested := Drain{Requested: "drain"}
	for _, tc := range []struct {
		name              string
		drain             Drain
		change            Change
		node              NodeState
		uncordon, deliver bool
	}{
		{name: "in progress", drain: requested, change: ChangeDrain, node: NodeReady, uncordon: true},
		{name: "in progress, of another change", drain: requested, change: ChangeRestart, node: NodeReady, uncordon: true},
		{name: "being ended", drain: Drain{Requested: "drain", Uncordon: "drain"}, change: ChangeDrain, node: NodeReady},
		{name: "ended", change: ChangeDrain, node: NodeReady, deliver: true},
		{name: "done", drain: Drain{Requested: "drain", Done: "drain"}, change: ChangeDrain, node: NodeReady, deliver: true},
		{name: "of a Node that is not ready", drain: requested, change: ChangeDrain, node: NodeNotReady, deliver: true},
		{name: "without a connection", drain: requested, change: ChangeDrain, node: NodeUnknown, deliver: true},
	} {
		server, worker := member("s", "ec"), member("w", "w")
		server.Init, worker.Change, worker.Drain, worker.Node = true, tc.change, tc.drain, tc.node
		d := Decide(Inputs{Bootstrapped: true, Machines: []Machine{server, worker}}).Decisions[1]
		if d.Uncordon != tc.uncordon || d.Deliver != tc.deliver || d.Drain != "" {
			t.Errorf("%s: got %+v", tc.name, d)
		}
		if !tc.deliver && d.Reason != ReasonUncordoning {
			t.Errorf("%s: the reason is %s", tc.name, d.Reason)
		}
	}
}
