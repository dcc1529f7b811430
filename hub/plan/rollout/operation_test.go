package rollout

import "testing"

func waitFor(operation string) Wait {
	return Wait{ReasonWaitingForOperation, "Waiting for " + operation + " to end"}
}

// TestTaskDoesNotWaitForAnUpgrade: what restarts workers for an operation waits for servers to restart for it, and not for an upgrade of
// them, which waits for the operation.
func TestTaskDoesNotWaitForAnUpgrade(t *testing.T) {
	a, w := member("a", "ec"), member("w", "w")
	a.Init, a.Version, a.WantVersion, w.Version, w.WantVersion = true, "v1.35.0", "v1.36.0", "v1.35.0", "v1.36.0"
	w.Task, w.Change = true, ChangeRestart
	for name, tc := range map[string]struct {
		server func(*Machine)
		want   string
	}{
		"the server has its task yet to come": {func(m *Machine) { m.Task, m.Change = true, ChangeRestart }, ReasonWaitingForTurn},
		"the server restarts": {func(m *Machine) { m.Task, m.Progress, m.Underway = true, ProgressApplying, ChangeRestart },
			ReasonWaitingForTurn},
		"the server is not healthy after it": {func(m *Machine) { m.ProbesPassed, m.Unhealthy = false, []string{"etcd"} },
			ReasonWaitingForTurn},
		"the server is done, and is to change": {func(m *Machine) { m.Change = ChangeDrain }, ReasonDelivering},
		"the server is done":                   {func(*Machine) {}, ReasonDelivering},
	} {
		server := a
		tc.server(&server)
		out := Decide(Inputs{Bootstrapped: true, Hold: waitFor("CertificateRotation one"), Machines: []Machine{server, w}})
		if d := out.Decisions[1]; d.Reason != tc.want {
			t.Errorf("%s: got %+v", name, d)
		}
		if d := out.Decisions[0]; server.Change == ChangeDrain && d.Reason != ReasonWaitingForOperation {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}

// TestOperationEndsDrain: a machine that was drained for a change, which waits for the operation, is uncordoned. The machines of the
// operation wait for that, and not for the change.
func TestOperationEndsDrain(t *testing.T) {
	for _, roles := range []string{"ec", "c", "w"} {
		first, a, b := member("0", "ec"), member("a", roles), member("b", roles)
		first.Init = true
		a.Change, a.Drain = ChangeDrain, Drain{Requested: "drain", Done: "drain"}
		b.Task, b.Change = true, ChangeRestart
		in := Inputs{Bootstrapped: true, Hold: waitFor("CertificateRotation one")}
		in.ControlPlaneDrain = DrainOptions{Enabled: true, Options: "drain"}
		in.WorkerDrain = in.ControlPlaneDrain
		decide := func() []Decision {
			in.Machines = []Machine{first, a, b}
			return Decide(in).Decisions
		}
		if d := decide(); !d[1].Uncordon || d[2].Deliver {
			t.Errorf("%s: got %+v", roles, d)
		}
		a.Drain.Uncordon = a.Drain.Requested
		if d := decide(); d[1].Uncordon || d[1].Reason != ReasonUncordoning || d[2].Deliver {
			t.Errorf("%s, while it is uncordoned: got %+v", roles, d)
		}
		a.Drain = Drain{}
		if d := decide(); d[1].Drain != "" || d[1].Reason != ReasonWaitingForOperation || !d[2].Deliver {
			t.Errorf("%s, when it is uncordoned: got %+v", roles, d)
		}
	}
}

// TestRestoreEndsDrain: what was drained before a restore was not drained in the restored cluster.
func TestRestoreEndsDrain(t *testing.T) {
	a := member("a", "ec")
	a.Init, a.Task, a.Regardless, a.Change, a.Drain = true, true, true, ChangeRestart, Drain{Requested: "drain", Done: "drain"}
	in := Inputs{Bootstrapped: true, Hold: waitFor("ETCDSnapshotRestore one"), Machines: []Machine{a}}
	if d := Decide(in).Decisions[0]; !d.Deliver || !d.Uncordon {
		t.Errorf("got %+v", d)
	}
	in.Machines[0].Drain.Uncordon = "drain"
	if d := Decide(in).Decisions[0]; !d.Deliver || d.Uncordon {
		t.Errorf("again: got %+v", d)
	}
}

// TestRestoredHubEndsDrain: a Node that is drained in the backup of the hub does not stay so until a user corrects the version.
func TestRestoredHubEndsDrain(t *testing.T) {
	a := member("a", "ec")
	a.Init, a.Change, a.Drain = true, ChangeDrain, Drain{Requested: "drain"}
	in := Inputs{Bootstrapped: true, Blocked: Wait{Reason: ReasonHubRestored, Message: "Node n runs v1.36.3"}, Machines: []Machine{a}}
	out := Decide(in)
	if d := out.Decisions[0]; !d.Uncordon || d.Deliver || out.Wait != in.Blocked {
		t.Errorf("got %+v, the cluster waits for %+v", d, out.Wait)
	}
	in.Machines[0].Drain = Drain{}
	if d := Decide(in).Decisions[0]; d.Uncordon || d.Deliver || d.Reason != ReasonHubRestored {
		t.Errorf("when it is uncordoned: got %+v", d)
	}
}

// TestLeftOutCountsForNoLimit: a lost worker that the operation goes on without does not keep others from their tasks.
func TestLeftOutCountsForNoLimit(t *testing.T) {
	for _, node := range []NodeState{NodeLost, NodeAbsent} {
		for leftOut, want := range map[bool]string{false: ReasonWaitingForOthers, true: ReasonDelivering} {
			first, lost, other := member("0", "ec"), member("a", "w"), member("b", "w")
			first.Init = true
			lost.Node, lost.Progress, lost.Underway, lost.Change, lost.LeftOut = node, ProgressPending, ChangeRestart, ChangeRestart, leftOut
			other.Task, other.Change = true, ChangeRestart
			out := Decide(Inputs{Bootstrapped: true, Hold: waitFor("CertificateRotation one"), Machines: []Machine{first, lost, other}})
			if d := out.Decisions[2]; d.Reason != want {
				t.Errorf("%s, left out %t: got %+v", node, leftOut, d)
			}
			if d := out.Decisions[1]; d.Deliver {
				t.Errorf("%s, left out %t: the lost one gets %+v", node, leftOut, d)
			}
		}
	}
}
