package agentupgrade

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

var agents = map[string]string{"amd64": "new"}

// machine is a machine with a state: "?" has reported nothing, "asked" neither, "-" was asked for nothing, and the others are phases of
// generation 2.
func machine(name string, server bool, state string) Machine {
	m := Machine{Name: name, Server: server}
	requested := plans.AgentUpgrade{Generation: 2, Checksums: agents}
	switch state {
	case "?":
	case "asked":
		m.Asked = true
	case "-":
		m.Asked, m.Reported = true, &plans.AgentStatus{Version: "v1"}
	case "requested":
		m.Asked, m.Requested, m.Reported = true, requested, &plans.AgentStatus{Version: "v1"}
	default:
		m.Asked, m.Requested = true, requested
		m.Reported = &plans.AgentStatus{Version: "v1", Generation: 2, Phase: plans.UpgradePhase(state), Message: "because"}
		if m.Reported.Phase == plans.UpgradeDone {
			m.Reported.Version, m.Reported.Message = "v2", ""
		}
	}
	return m
}

// cluster makes machines of words such as "s:upgraded" for a server and "w:-" for a worker.
func cluster(words string) []Machine {
	var machines []Machine
	for i, word := range strings.Fields(words) {
		role, state, _ := strings.Cut(word, ":")
		machines = append(machines, machine(fmt.Sprintf("m%d", i+1), role == "s", state))
	}
	return machines
}

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		machines, workers string
		want              string
		reason            string
		agents            map[string]string
	}{
		"nobody has reported":          {machines: "s:? w:asked", want: "Ask/NotReported NotReported", reason: "PartlyUpgraded"},
		"first server":                 {machines: "s:- s:- w:-", want: "Request/Upgrading Waiting Waiting", reason: "Upgrading"},
		"one at a time":                {machines: "s:requested s:- w:-", want: "Upgrading Waiting Waiting", reason: "Upgrading"},
		"next server":                  {machines: "s:upgraded s:- w:-", want: "Upgraded Request/Upgrading Waiting", reason: "Upgrading"},
		"a server fails":               {machines: "s:rolled-back s:- w:-", want: "RolledBack Waiting Waiting", reason: "Paused"},
		"workers":                      {machines: "s:upgraded w:- w:-", want: "Upgraded Request/Upgrading Waiting", reason: "Upgrading"},
		"a wave of workers":            {machines: "w:- w:- w:-", workers: "2", want: "Request/Upgrading Request/Upgrading Waiting", reason: "Upgrading"},
		"a failure takes a place":      {machines: "w:rolled-back w:- w:-", workers: "2", want: "RolledBack Request/Upgrading Waiting", reason: "Upgrading"},
		"as many failures as places":   {machines: "w:rolled-back w:rolled-back w:-", workers: "2", want: "RolledBack RolledBack Waiting", reason: "Paused"},
		"percentage":                   {machines: "w:- w:- w:- w:-", workers: "50%", want: "Request/Upgrading Request/Upgrading Waiting Waiting", reason: "Upgrading"},
		"refused takes no place":       {machines: "s:refused s:- w:-", want: "Refused Request/Upgrading Waiting", reason: "Upgrading"},
		"an unknown takes no place":    {machines: "s:asked s:upgraded w:-", want: "NotReported Upgraded Request/Upgrading", reason: "Upgrading"},
		"download fails":               {machines: "w:downloading w:-", want: "Upgrading Waiting", reason: "Upgrading"},
		"waits for a plan":             {machines: "w:waiting w:-", want: "Upgrading Waiting", reason: "Upgrading"},
		"all":                          {machines: "s:upgraded w:upgraded", want: "Upgraded Upgraded", reason: "Upgraded"},
		"all but a failure":            {machines: "s:upgraded w:rolled-back", want: "Upgraded RolledBack", reason: "Failed"},
		"all but a package":            {machines: "s:upgraded w:refused", want: "Upgraded Refused", reason: "PartlyUpgraded"},
		"hub without agents":           {machines: "s:- w:-", agents: map[string]string{}, want: "Waiting Waiting", reason: "NoAgents"},
		"hub hands out others by now":  {machines: "s:requested", agents: map[string]string{"amd64": "newer"}, want: "Request/Upgrading", reason: "Upgrading"},
		"others, but it has succeeded": {machines: "s:upgraded", agents: map[string]string{"amd64": "newer"}, want: "Upgraded", reason: "Upgraded"},
		"others, but it has failed":    {machines: "s:rolled-back", agents: map[string]string{"amd64": "newer"}, want: "RolledBack", reason: "Failed"},
		"no machines":                  {reason: "Upgraded"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Generation: 2, Checksums: agents, WorkerConcurrency: test.workers, Machines: cluster(test.machines)}
			if test.agents != nil {
				in.Checksums = test.agents
			}
			decisions := Decide(in)
			var got []string
			for _, d := range decisions {
				got = append(got, map[Action]string{None: "", Ask: "Ask/", Request: "Request/"}[d.Action]+string(d.State))
				if d.Message == "" {
					t.Errorf("no message for %s", d.State)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			if done, reason, text := Summary(in, decisions); reason != test.reason || done != (reason == "Upgraded") {
				t.Errorf("the summary is %s: %s", reason, text)
			}
		})
	}
}

// TestNextGeneration: what was upgraded for an earlier generation is upgraded again, and what has failed has another try.
func TestNextGeneration(t *testing.T) {
	in := Inputs{Generation: 3, Checksums: agents, Machines: cluster("s:rolled-back w:upgraded w:refused")}
	if got := Decide(in); got[0].Action != Request || got[1].State != Waiting || got[2].State != Waiting {
		t.Errorf("got %+v", got)
	}
	in.Generation = 1 // it was decreased
	if got := Decide(in); got[0].State != RolledBack || got[1].State != Upgraded {
		t.Errorf("got %+v", got)
	}
}

func TestSummary(t *testing.T) {
	in := Inputs{Generation: 2, Checksums: agents, Machines: cluster("s:upgraded s:rolled-back w:- w:refused w:asked w:-")}
	done, reason, text := Summary(in, Decide(in))
	want := "1 of 6 agents upgraded; rolled back: m2; waiting: m3, m6; refused: m4; without a reported version: m5; versions: v1 (4), v2 (1); " +
		"paused because of failures; correct them and increase spec.redeploySystemAgentGeneration"
	if diff := cmp.Diff(want, text); diff != "" || done || reason != "Paused" {
		t.Errorf("%t, %s, %s", done, reason, diff)
	}
}

// TestBudget runs upgrades with agents that succeed, fail and refuse at random, and a hub that forgets everything but the objects: never
// are more agents at work than the strategy allows, and it ends when all have been upgraded, or as many have failed.
func TestBudget(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		in := Inputs{Generation: 2, Checksums: agents, WorkerConcurrency: fmt.Sprint(1 + random.IntN(3))}
		for i := range 1 + random.IntN(12) {
			in.Machines = append(in.Machines, machine(fmt.Sprintf("m%d", i), random.IntN(3) == 0, "?"))
		}
		reason := ""
		for step := 0; reason != "Upgraded" && reason != "Paused" && reason != "Failed" && reason != "PartlyUpgraded" || pending(in); step++ {
			if step > 1000 {
				t.Fatalf("seed %d: it does not end: %s", seed, reason)
			}
			decisions := Decide(in)
			for i, d := range decisions {
				m := &in.Machines[i]
				switch d.Action {
				case Ask:
					m.Asked = true
				case Request:
					m.Asked, m.Requested = true, plans.AgentUpgrade{Generation: 2, Checksums: maps.Clone(agents)}
				}
			}
			checkLimit(t, seed, in)
			_, reason, _ = Summary(in, Decide(in))
			answer(random, &in.Machines[random.IntN(len(in.Machines))])
		}
		if reason == "Upgraded" && slices.ContainsFunc(in.Machines, func(m Machine) bool { return m.Reported.Version != "v2" }) {
			t.Errorf("seed %d: not all are upgraded", seed)
		}
	}
}

// pending reports whether an agent has not answered yet.
func pending(in Inputs) bool {
	return slices.ContainsFunc(in.Machines, func(m Machine) bool {
		return m.Reported == nil || m.Requested.Generation > m.Reported.Generation
	})
}

func answer(random *rand.Rand, m *Machine) {
	switch {
	case m.Asked && m.Reported == nil:
		m.Reported = &plans.AgentStatus{Version: "v1"}
	case m.Reported != nil && m.Reported.Generation < m.Requested.Generation:
		phases := []plans.UpgradePhase{plans.UpgradeDone, plans.UpgradeDone, plans.UpgradeDone, plans.UpgradeRolledBack, plans.UpgradeRefused}
		status := plans.AgentStatus{Version: "v1", Generation: m.Requested.Generation, Phase: phases[random.IntN(len(phases))], Message: "x"}
		if status.Phase == plans.UpgradeDone {
			status.Version = "v2"
		}
		m.Reported = &status
	}
}

func checkLimit(t *testing.T, seed uint64, in Inputs) {
	t.Helper()
	busy := map[bool]int{}
	for _, m := range in.Machines {
		if m.Requested.Generation == 2 && (m.Reported.Generation < 2 || m.Reported.Phase == plans.UpgradeRolledBack) {
			busy[m.Server]++
		}
	}
	workers := 0
	_, _ = fmt.Sscan(in.WorkerConcurrency, &workers)
	if busy[true] > 1 || busy[false] > workers {
		t.Errorf("seed %d: %v are being upgraded", seed, busy)
	}
}
