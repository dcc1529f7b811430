package agentupgrade

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/plans"
)

var agents = map[string]string{"amd64": "new"}

// machine is a machine with a state: "?" has reported nothing, "awaited" and "asked" neither, "-" was asked for nothing, and the others are
// phases of generation 2.
func machine(name string, server bool, state string) Machine {
	m := Machine{Name: name, Server: server}
	requested := plans.AgentUpgrade{Generation: 2, Checksums: agents}
	switch state {
	case "?":
	case "awaited":
		m.Asked, m.Awaited = true, true
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
	newer, none := map[string]string{"amd64": "newer"}, map[string]string{}
	for name, test := range map[string]struct {
		machines, workers string
		// want are states, or Ask and Request where something is done.
		want, reason string
		agents       map[string]string
	}{
		"nobody has reported":          {"s:? w:asked", "", "Ask NotReported", "Upgrading", nil},
		"nobody reports":               {"s:asked w:asked", "", "NotReported NotReported", "PartlyUpgraded", nil},
		"a server may answer yet":      {"s:awaited s:upgraded w:-", "", "NotReported Upgraded Waiting", "Upgrading", nil},
		"a worker may answer yet":      {"s:upgraded w:awaited w:-", "", "Upgraded NotReported Request", "Upgrading", nil},
		"first server":                 {"s:- s:- w:-", "", "Request Waiting Waiting", "Upgrading", nil},
		"one at a time":                {"s:requested s:- w:-", "", "Upgrading Waiting Waiting", "Upgrading", nil},
		"next server":                  {"s:upgraded s:- w:-", "", "Upgraded Request Waiting", "Upgrading", nil},
		"a server fails":               {"s:rolled-back s:- w:-", "", "RolledBack Waiting Waiting", "Paused", nil},
		"workers":                      {"s:upgraded w:- w:-", "", "Upgraded Request Waiting", "Upgrading", nil},
		"a wave of workers":            {"w:- w:- w:-", "2", "Request Request Waiting", "Upgrading", nil},
		"a failure takes a place":      {"w:rolled-back w:- w:-", "2", "RolledBack Request Waiting", "Upgrading", nil},
		"as many failures as places":   {"w:rolled-back w:rolled-back w:-", "2", "RolledBack RolledBack Waiting", "Paused", nil},
		"percentage":                   {"w:- w:- w:- w:-", "50%", "Request Request Waiting Waiting", "Upgrading", nil},
		"refused takes no place":       {"s:refused s:- w:-", "", "Refused Request Waiting", "Upgrading", nil},
		"an unknown takes no place":    {"s:asked s:upgraded w:-", "", "NotReported Upgraded Request", "Upgrading", nil},
		"download fails":               {"w:downloading w:-", "", "Upgrading Waiting", "Upgrading", nil},
		"waits for a plan":             {"w:waiting w:-", "", "Upgrading Waiting", "Upgrading", nil},
		"all":                          {"s:upgraded w:upgraded", "", "Upgraded Upgraded", "Upgraded", nil},
		"all but a failure":            {"s:upgraded w:rolled-back", "", "Upgraded RolledBack", "Failed", nil},
		"all but a package":            {"s:upgraded w:refused", "", "Upgraded Refused", "PartlyUpgraded", nil},
		"hub without agents":           {"s:- w:-", "", "Waiting Waiting", "NoAgents", none},
		"hub hands out others by now":  {"s:requested", "", "Request", "Upgrading", newer},
		"others, but it has succeeded": {"s:upgraded", "", "Upgraded", "Upgraded", newer},
		"others, but it has failed":    {"s:rolled-back", "", "RolledBack", "Failed", newer},
		"no machines":                  {"", "", "", "Upgraded", nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Generation: 2, Checksums: agents, WorkerConcurrency: test.workers, Machines: cluster(test.machines)}
			if test.agents != nil {
				in.Checksums = test.agents
			}
			decisions := Decide(in)
			var got []string
			for _, d := range decisions {
				text := string(d.State)
				switch want := map[Action]State{Ask: NotReported, Request: Upgrading}; {
				case d.Action == None:
				case d.State != want[d.Action]:
					t.Errorf("action %d in the state %s", d.Action, d.State)
				default:
					text = map[Action]string{Ask: "Ask", Request: "Request"}[d.Action]
				}
				got = append(got, text)
				if d.Message == "" {
					t.Errorf("no message for %s", d.State)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			status, reason, text := Summary(in, decisions)
			if reason != test.reason || (status == metav1.ConditionTrue) != (reason == "Upgraded") ||
				(status == metav1.ConditionUnknown) != (reason == "Upgrading") {
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
	in = Inputs{Generation: 3, Checksums: agents, WorkerConcurrency: "2", Machines: cluster("w:- w:requested w:downloading w:upgraded")}
	if got := Decide(in); got[0].State != Waiting || got[1].Action != Request || got[2].Action != Request || got[3].State != Waiting {
		t.Errorf("agents that are busy lose their place: %+v", got)
	}
	in.Machines = cluster("s:rolled-back w:upgraded")
	in.Generation = 1 // it was decreased
	if got := Decide(in); got[0].State != RolledBack || got[1].State != Upgraded {
		t.Errorf("got %+v", got)
	}
}

func TestSummary(t *testing.T) {
	in := Inputs{Generation: 2, Checksums: agents, Machines: cluster("s:upgraded s:rolled-back w:- w:refused w:asked w:-")}
	status, reason, text := Summary(in, Decide(in))
	want := "1 of 6 agents upgraded; rolled back: m2; waiting: m3, m6; refused: m4; without a reported version: m5; " +
		"versions: v1 (4), v2 (1); paused because of failures; correct them and increase spec.redeploySystemAgentGeneration"
	if diff := cmp.Diff(want, text); diff != "" || status != metav1.ConditionFalse || reason != "Paused" {
		t.Errorf("%s, %s, %s", status, reason, diff)
	}
}

// TestBudget runs upgrades with agents that succeed, fail and refuse at random, with a generation that is increased meanwhile, and a hub
// that forgets everything but the objects: never are more agents at work than the strategy allows, and it ends when all have been upgraded,
// or as many have failed.
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
			if random.IntN(20) == 0 && in.Generation < 4 {
				in.Generation++
			}
			decisions := Decide(in)
			for i, d := range decisions {
				m := &in.Machines[i]
				switch d.Action {
				case Ask:
					m.Asked = true
				case Request:
					m.Asked, m.Requested = true, plans.AgentUpgrade{Generation: in.Generation, Checksums: maps.Clone(agents)}
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
		failed := m.Requested.Generation == in.Generation && m.Reported != nil && m.Reported.Phase == plans.UpgradeRolledBack
		if m.Requested.Generation > 0 && (m.Reported.Generation < m.Requested.Generation || failed) {
			busy[m.Server]++
		}
	}
	workers := 0
	_, _ = fmt.Sscan(in.WorkerConcurrency, &workers)
	if busy[true] > 1 || busy[false] > workers {
		t.Errorf("seed %d: %v are being upgraded", seed, busy)
	}
}
