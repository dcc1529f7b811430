package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fresh returns a machine that has just registered; roles are letters of "ecw".
func fresh(name, roles string) Machine {
	return Machine{
		Name: name, HasPlanSecret: true, Change: ChangeFirst,
		Etcd: strings.Contains(roles, "e"), ControlPlane: strings.Contains(roles, "c"), Worker: strings.Contains(roles, "w"),
	}
}

// member returns a machine of an established cluster.
func member(name, roles string) Machine {
	m := fresh(name, roles)
	m.Change, m.Progress, m.CheckedIn, m.ProbesPassed, m.Node = ChangeNone, ProgressApplied, true, true, NodeReady
	if m.Server() {
		m.JoinURL = "https://" + name
	}
	if m.Etcd {
		m.Membership, m.EtcdProbe = MemberVoter, ProbeHealthy
	}
	return m
}

func TestMaxUnavailable(t *testing.T) {
	tests := []struct {
		concurrency    string
		machines, want int
	}{
		{"", 5, 1}, {"1", 5, 1}, {"3", 5, 3}, {"0", 5, 5}, {"25%", 5, 2}, {"100%", 5, 5}, {"0%", 5, 5}, {"many", 5, 1}, {"-2", 5, 1}, {"10%", 0,
			0},
	}
	for _, tc := range tests {
		if got := MaxUnavailable(tc.concurrency, tc.machines); got != tc.want {
			t.Errorf("MaxUnavailable(%q, %d) = %d, want %d", tc.concurrency, tc.machines, got, tc.want)
		}
	}
}

// TestGroupLimitMessage: the message of the cluster names the field that limits how many machines may be unavailable.
func TestGroupLimitMessage(t *testing.T) {
	server, lost, next := member("s", "ecw"), member("v", "w"), member("w", "w")
	server.Init, lost.Node, next.Change = true, NodeLost, ChangeRestart
	got := Decide(Inputs{Bootstrapped: true, Machines: []Machine{server, lost, next}}).Decisions[2]
	want := "Waiting for v: upgradeStrategy.workerConcurrency allows 1 of 2 worker nodes to be unavailable"
	if got.Reason != ReasonWaitingForOthers || got.Detail != want {
		t.Errorf("got %+v", got)
	}
}

// TestConcurrencyOfJoinedMachines: a percentage is one of the machines that serve. A pool that is scaled up during an upgrade does not take
// all of them down.
func TestConcurrencyOfJoinedMachines(t *testing.T) {
	server := member("s", "ecw")
	server.Init = true
	in := Inputs{Bootstrapped: true, WorkerConcurrency: "25%", Machines: []Machine{server}}
	for i := range 4 {
		serving := member(fmt.Sprintf("old%d", i), "w")
		serving.Change = ChangeRestart
		in.Machines = append(in.Machines, serving)
	}
	for i := range 12 {
		created := fresh(fmt.Sprintf("new%d", i), "w")
		created.Unusable = "has no infrastructure yet"
		in.Machines = append(in.Machines, created)
	}
	delivered := 0
	for _, d := range Decide(in).Decisions {
		if d.Deliver {
			delivered++
		}
	}
	if delivered != 1 {
		t.Errorf("%d of 4 serving machines get their change at once, want 1", delivered)
	}
}

// TestNoDrainBeforeOthersHaveJoined: the Pods of the only Node have nowhere to go. A new machine may wait for the very change of this one.
func TestNoDrainBeforeOthersHaveJoined(t *testing.T) {
	created, starting := fresh("b", "w"), fresh("b", "w")
	created.Unusable = "has no infrastructure yet"
	starting.Change, starting.Progress, starting.Underway, starting.Node = ChangeNone, ProgressApplying, ChangeFirst, NodeAbsent
	for _, tc := range []struct {
		name  string
		other Machine
		hooks bool
		// want are the options of the drain; empty where the change is delivered.
		want string
	}{
		{name: "without infrastructure", other: created},
		{name: "without infrastructure, with hooks", other: created, hooks: true, want: "hooks"},
		{name: "starting", other: starting},
		{name: "joined", other: member("b", "w"), want: "drain"},
	} {
		server := member("a", "ecw")
		server.Init, server.Change, server.Version, server.WantVersion = true, ChangeDrain, "v1.35.6+k3s1", "v1.36.3+k3s1"
		d := Decide(Inputs{Bootstrapped: true, Machines: []Machine{server, tc.other},
			ControlPlaneDrain: DrainOptions{Enabled: true, Hooks: tc.hooks, Options: "drain", HooksOnly: "hooks"}}).Decisions[0]
		if d.Drain != tc.want || d.Deliver != (tc.want == "") {
			t.Errorf("%s: got %+v", tc.name, d)
		}
	}
}

func TestElectDesignated(t *testing.T) {
	const id = "id-a"
	with := func(m Machine, change func(*Machine)) Machine {
		if change != nil {
			change(&m)
		}
		return m
	}
	designated := func(m Machine, change func(*Machine)) Machine {
		m.ID = id
		return with(m, change)
	}
	starting := func(p Progress) Machine {
		m := fresh("0", "ecw")
		m.Init, m.Change, m.Underway, m.Progress = true, ChangeNone, ChangeFirst, p
		return m
	}
	b, c := member("b", "ecw"), member("c", "ecw")
	b.Init = true
	for name, tc := range map[string]struct {
		machines      []Machine
		bootstrapped  bool
		want, message string
	}{
		"with the data":                       {machines: []Machine{designated(member("a", "ecw"), nil), b}, bootstrapped: true, want: "a"},
		"of a new cluster":                    {machines: []Machine{fresh("0", "ecw"), designated(fresh("a", "ecw"), nil)}, want: "a"},
		"registered again":                    {machines: []Machine{designated(fresh("a", "ecw"), nil), b, c}, bootstrapped: true, want: "b"},
		"registered before others":            {machines: []Machine{designated(fresh("a", "ecw"), nil), fresh("0", "ecw")}, want: "a"},
		"after the first machine has started": {machines: []Machine{designated(fresh("a", "ecw"), nil), b, c}, want: "b"},
		"while the first machine starts":      {machines: []Machine{designated(fresh("a", "ecw"), nil), starting(ProgressApplying)}, want: "0"},
		"before the agent of the first machine has begun": {machines: []Machine{designated(fresh("a", "ecw"), nil),
			starting(ProgressPending)}, want: "0"},
		"after the first machine has failed to start": {machines: []Machine{designated(fresh("a", "ecw"), nil), starting(ProgressFailed)},
			want: "a"},
		"while the first machine is deleted": {machines: []Machine{designated(fresh("a", "ecw"), nil),
			with(starting(ProgressApplying), func(m *Machine) { m.Deleting = true })}, want: "a"},
		"another that is not registered": {machines: []Machine{starting(ProgressApplying)}, want: "0"},
		"lost": {machines: []Machine{designated(member("a", "ecw"), func(m *Machine) { m.Node = NodeLost }), b}, bootstrapped: true,
			want: "b"},
		"with an unhealthy member": {machines: []Machine{designated(member("a", "ecw"), func(m *Machine) { m.MemberHealth = MemberUnhealthy }),
			b}, bootstrapped: true, want: "b"},
		"lost, and the init node": {machines: []Machine{designated(member("a", "ecw"), func(m *Machine) { m.Node, m.Init = NodeLost, true }),
			c}, bootstrapped: true, want: "a"},
		"not registered": {machines: []Machine{fresh("b", "ecw")}, message: "not registered yet"},
		"gone":           {machines: []Machine{b, c}, bootstrapped: true, want: "b"},
		"without the data, as all": {machines: []Machine{designated(fresh("a", "ecw"), nil)}, bootstrapped: true,
			message: "No etcd machine with the cluster's data is left"},
		"without etcd": {machines: []Machine{designated(fresh("a", "cw"), nil)}, message: "a does not have the role etcd"},
		"deleted": {machines: []Machine{designated(member("a", "ecw"), func(m *Machine) { m.Deleting = true }), c}, bootstrapped: true,
			want: "c"},
		"deleted before the start": {machines: []Machine{designated(fresh("a", "ecw"), func(m *Machine) { m.Deleting = true })},
			message: "a is being deleted"},
		"without a plan Secret": {machines: []Machine{designated(fresh("a", "ecw"), func(m *Machine) { m.HasPlanSecret = false })},
			message: "a has no plan Secret yet"},
	} {
		got := Elect(tc.machines, id, tc.bootstrapped)
		if got.Init != tc.want || !strings.Contains(got.Message, tc.message) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestDesignatedTooLate: a machine that is designated while another one starts the cluster gets no plan, and says why.
func TestDesignatedTooLate(t *testing.T) {
	first, late := fresh("a", "ecw"), fresh("b", "ecw")
	first.Init, first.Change, first.Underway, first.Progress, late.ID = true, ChangeNone, ChangeFirst, ProgressApplying, "id-b"
	got := Decide(Inputs{Machines: []Machine{first, late}, Designated: "id-b"}).Decisions[1]
	if got.Deliver || got.Reason != ReasonWaitingForInitNode || !strings.Contains(got.Message, "before this machine was designated") {
		t.Errorf("got %+v", got)
	}
	first.Progress, first.ProbesPassed, first.JoinURL, first.Underway = ProgressApplied, true, "https://a", ChangeNone
	if got = Decide(Inputs{Machines: []Machine{first, late}, Designated: "id-b", Bootstrapped: true}).Decisions[1]; !got.Deliver {
		t.Errorf("it does not join: %+v", got)
	}
}

func TestElectPrefersMembers(t *testing.T) {
	newcomer := fresh("a", "ecw")
	newcomer.Init = true
	if got := Elect([]Machine{newcomer, member("b", "ecw")}, "", true); got.Init != "b" {
		t.Errorf("got %+v", got)
	}
	unusable := fresh("a", "ecw")
	unusable.Unusable = "has failed"
	if got := Elect([]Machine{unusable, fresh("b", "ecw")}, "", false); got.Init != "b" {
		t.Errorf("got %+v", got)
	}
	if got := Elect([]Machine{unusable}, "", false); got.Message != "Waiting for an etcd machine that can start the cluster: a has failed" {
		t.Errorf("got %+v", got)
	}
	twoMarks := []Machine{member("a", "ecw"), member("b", "ecw")}
	twoMarks[0].Init, twoMarks[1].Init = true, true
	if got := Elect(twoMarks, "", true); got.Init != "a" {
		t.Errorf("got %+v", got)
	}
}

// TestJoinURL: workers are spread over all servers, and keep their server while others are added and removed.
func TestJoinURL(t *testing.T) {
	machines := []Machine{member("a", "ec"), member("b", "ec"), member("c", "ec"), fresh("w", "w")}
	machines[0].Init = true
	used := map[string]int{}
	for i := range 300 {
		used[JoinURL(machines, machines[3], fmt.Sprint("uid-", i))]++
	}
	for _, url := range []string{"https://a", "https://b", "https://c"} {
		if used[url] < 50 {
			t.Errorf("%s is joined by %d of 300 workers", url, used[url])
		}
	}
	w := machines[3]
	w.FailureDomain, machines[2].FailureDomain = "zone-2", "zone-2"
	for i := range 10 {
		if got := JoinURL(machines, w, fmt.Sprint("uid-", i)); got != "https://c" {
			t.Errorf("a worker joins %q instead of the server in its failure domain", got)
		}
	}
	machines[2].FailureDomain = ""
	if got := JoinURL(machines, w, "uid"); got == "" {
		t.Error("a worker whose failure domain has no server has no join URL")
	}
	w.JoinedTo = "https://b"
	if got := JoinURL(machines, w, "uid"); got != "https://b" {
		t.Errorf("got %q", got)
	}
	machines[1].Deleting = true
	if got := JoinURL(machines, w, "uid"); got == "https://b" || got == "" {
		t.Errorf("got %q", got)
	}
	if got := JoinURL(machines, machines[2], "uid"); got != "https://a" {
		t.Errorf("a server joins %q", got)
	}
	if got := JoinURL(machines, machines[0], "uid"); got != "" {
		t.Errorf("the init node joins %q", got)
	}
}

// TestReplaced: what a plan does that another one replaces is kept until the machine has applied one.
func TestReplaced(t *testing.T) {
	for _, tc := range []struct {
		progress       Progress
		underway, want Change
	}{
		{ProgressPending, ChangeRestart, ChangeRestart}, {ProgressApplying, ChangeDrain, ChangeDrain}, {ProgressFailed, ChangeRestart,
			ChangeRestart},
		{ProgressApplied, ChangeNone, ChangeNone}, {ProgressPending, ChangeMinor, ChangeNone}, {ProgressNone, ChangeNone, ChangeNone},
		{ProgressApplying, ChangeFirst, ChangeNone}, // it has applied none, which is known anyway
	} {
		if got := (Machine{Progress: tc.progress, Underway: tc.underway}).Replaced(); got != tc.want {
			t.Errorf("%s, %s: got %q, want %q", tc.progress, tc.underway, got, tc.want)
		}
	}
	if Worst(ChangeRestart, ChangeMinor) != ChangeRestart || Worst(ChangeMinor, ChangeDrain) != ChangeDrain ||
		Worst("yes", ChangeMinor) != ChangeMinor || Worst(ChangeFirst, ChangeDrain) != ChangeFirst {
		t.Error("the worst of two is not it")
	}
}

// TestInterruptedAndPending: the message of a plan that does not go on says where to look and what to do.
func TestInterruptedAndPending(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"paused": {func(m *Machine) { m.Progress = ProgressPaused },
			"The plan is paused by annotation plan.cattle.io/paused of Secret a-machine-plan: remove the annotation to continue"},
		"canceled": {func(m *Machine) { m.Progress = ProgressCanceled },
			"The plan was canceled by annotation plan.cattle.io/canceled of Secret a-machine-plan: to continue, remove the annotation and " +
				"change the cluster's configuration"},
		"first plan": {func(m *Machine) { m.CheckedIn = false }, "Waiting for the agent to check in and apply the first plan; " + agentHelp},
		"first plan of a machine of a provider": {func(m *Machine) { m.CheckedIn, m.Provided = false, true },
			"Waiting for the machine to run its bootstrap data, and for its agent to check in and apply the first plan; " + bootstrapHelp},
		"pending of a machine of a provider": {func(m *Machine) { m.Provided = true },
			"Waiting for the agent to start applying the plan; " + agentHelp},
		"pending": {func(*Machine) {}, "Waiting for the agent to start applying the plan; " + agentHelp},
		"agent seen": {func(m *Machine) { m.LastSeen = now.Add(-agentTimeout) },
			"Waiting for the agent to start applying the plan; " + agentHelp},
		"agent not seen": {func(m *Machine) { m.LastSeen = now.Add(-agentTimeout - time.Minute) },
			"Waiting for the agent, last seen at 2026-11-01 11:44:00 UTC, to start applying the plan; check that the machine is up; " + agentHelp},
		"Node lost": {func(m *Machine) { m.Node = NodeLost },
			"Waiting for the agent to start applying the plan; the Node is not ready: check that the machine is up; " + agentHelp},
	} {
		m := member("a", "ecw")
		m.Init, m.PlanSecret, m.Progress = true, "a-machine-plan", ProgressPending
		tc.change(&m)
		if got := Decide(Inputs{Now: now, Bootstrapped: true, Machines: []Machine{m}}).Decisions[0]; got.Message != tc.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestClusterWait: a cluster waits for what has failed, and otherwise for the machine that is in the earliest stage, whatever their names.
func TestClusterWait(t *testing.T) {
	server, applying, waiting, failed, held := member("s", "ecw"), fresh("a", "w"), fresh("b", "w"), fresh("c", "w"), member("aa", "w")
	server.Init = true
	applying.Change, applying.Progress, applying.CheckedIn = ChangeNone, ProgressApplying, true
	waiting.Unusable = "has no infrastructure yet: DevMachine b is not provisioned"
	failed.Change, failed.Progress, failed.CheckedIn = ChangeNone, ProgressFailed, true
	paused := failed
	paused.Name, paused.Progress = "ab", ProgressPaused
	held.Change = ChangeRestart
	for want, machines := range map[string][]Machine{
		ReasonWaitingForInfrastructure: {server, applying, waiting},
		ReasonPlanFailed:               {server, applying, waiting, failed, held, paused},
		ReasonApplyingPlan:             {server, applying, held},
		ReasonPlanPaused:               {server, applying, waiting, held, paused},
		ReasonWaitingForOperation:      {server, held},
	} {
		in := Inputs{Machines: machines, Bootstrapped: true, WorkerConcurrency: "0", Hold: waitFor("CertificateRotation r")}
		got := Decide(in).Wait
		if got.Reason != want || !strings.HasPrefix(got.Message, "Configuring worker node") {
			t.Errorf("want %s, got %+v", want, got)
		}
	}
}
