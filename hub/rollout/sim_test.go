package rollout

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sim is a cluster with agents that do one step of their work between two decisions.
type sim struct {
	in  Inputs
	log strings.Builder
	// broken machines fail every plan; silent ones have no agent; sick ones apply their plan but never become healthy.
	broken, silent, sick map[string]bool
	rand                 *rand.Rand
}

func newSim(machines ...Machine) *sim {
	return &sim{in: Inputs{Machines: machines}, broken: map[string]bool{}, silent: map[string]bool{}, sick: map[string]bool{}}
}

// fresh is a machine that has just been registered; roles are letters of "ecw".
func fresh(name, roles string) Machine {
	return Machine{
		Name: name, Identity: true, Change: ChangeFirst,
		Etcd: strings.Contains(roles, "e"), ControlPlane: strings.Contains(roles, "c"), Worker: strings.Contains(roles, "w"),
	}
}

// member is a machine that has been part of the cluster for long.
func member(name, roles string) Machine {
	m := fresh(name, roles)
	m.Change, m.Progress, m.CheckedIn, m.ProbesPassed = ChangeNone, ProgressApplied, true, true
	if m.Server() {
		m.JoinURL = "https://" + name
	}
	return m
}

func (s *sim) machine(name string) *Machine {
	i := slices.IndexFunc(s.in.Machines, func(m Machine) bool { return m.Name == name })
	return &s.in.Machines[i]
}

func (s *sim) logf(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

// run steps until nothing changes any more.
func (s *sim) run(title string) {
	s.logf("# %s", title)
	var last string
	for step := 1; step <= 60; step++ {
		text := s.step()
		if text == last {
			s.logf("")
			return
		}
		last = text
		s.logf("[%d]\n%s", step, text)
	}
	s.logf("does not settle\n")
}

// step elects, decides, delivers and lets the agents go on.
func (s *sim) step() string {
	if s.rand != nil {
		s.rand.Shuffle(len(s.in.Machines), func(i, j int) { s.in.Machines[i], s.in.Machines[j] = s.in.Machines[j], s.in.Machines[i] })
	}
	var text strings.Builder
	sorted := slices.SortedFunc(slices.Values(s.in.Machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	election := Elect(sorted, "", s.in.Bootstrapped)
	s.in.Blocked = Wait{}
	if election.Init == "" {
		s.in.Blocked = Wait{election.Reason, election.Message}
	}
	for i := range s.in.Machines {
		m := &s.in.Machines[i]
		if m.Init != (m.Name == election.Init) {
			m.Init = m.Name == election.Init
			if m.Init {
				fmt.Fprintf(&text, "    %s becomes the init node\n", m.Name)
			}
		}
	}
	out := Decide(s.in)
	switch {
	case out.Done:
		text.WriteString("    cluster: done\n")
	default:
		fmt.Fprintf(&text, "    cluster: %s: %s\n", out.Wait.Reason, out.Wait.Message)
	}
	for _, d := range out.Decisions {
		fmt.Fprintf(&text, "        %s: %s: %s\n", d.Machine, d.Reason, d.Message)
	}
	for _, d := range out.Decisions {
		s.advance(s.machine(d.Machine), d)
	}
	return text.String()
}

// advance is what a machine does between two looks at it.
func (s *sim) advance(m *Machine, d Decision) {
	switch {
	case d.Deliver:
		if m.Server() || m.JoinURL != "" {
			m.JoinedTo = JoinURL(s.in.Machines, *m, m.Name)
		}
		m.Underway, m.Change, m.Progress, m.Unhealthy, m.ProbesPassed = m.Change, ChangeNone, ProgressPending, []string{"kubelet"}, false
	case s.silent[m.Name]:
	case m.Progress == ProgressPending:
		m.Progress, m.CheckedIn = ProgressApplying, true
	case m.Progress == ProgressApplying && s.broken[m.Name]:
		m.Progress, m.Failure = ProgressFailed, "Attempt 1 of 5 to apply the plan failed"
	case m.Progress == ProgressApplying:
		m.Progress, m.Underway = ProgressApplied, ChangeNone
	case m.Progress == ProgressApplied && len(m.Unhealthy) > 0 && !s.sick[m.Name]:
		m.Unhealthy, m.ProbesPassed = nil, true
		if m.Server() {
			m.JoinURL = "https://" + m.Name
		}
		s.in.Bootstrapped = s.in.Bootstrapped || m.Init
	}
}

// scenarios are the simulations; each runs in the order of names and in random orders, and ends alike.
var scenarios = map[string]func(*sim){
	"one-machine-with-all-roles": func(s *sim) {
		s.in.Machines = []Machine{fresh("a", "ecw")}
		s.run("a new cluster of one machine")
		s.machine("a").Change = ChangeRestart
		s.run("its version changes")
		s.machine("a").Change = ChangeMinor
		s.run("a manifest of the hub's changes")
	},
	"roles-come-one-after-another": func(s *sim) {
		m := fresh("a", "e")
		m.Identity = false
		s.in.Machines = []Machine{m}
		s.run("an etcd machine registers")
		s.machine("a").Identity = true
		s.run("its plan Secret is made")
		s.in.Machines = append(s.in.Machines, fresh("b", "c"))
		s.run("a control plane machine registers")
		s.in.Machines = append(s.in.Machines, fresh("c", "w"))
		s.run("a worker registers")
	},
	"three-servers-and-two-workers": func(s *sim) {
		s.in.Machines = []Machine{fresh("a", "ecw"), fresh("b", "ecw"), fresh("c", "ecw"), fresh("v", "w"), fresh("w", "w")}
		s.run("a new cluster of five machines")
		for i := range s.in.Machines {
			s.in.Machines[i].Change = ChangeRestart
		}
		s.run("its version changes")
	},
	"separate-roles-change-with-concurrency": func(s *sim) {
		s.in.Bootstrapped = true
		s.in.ControlPlaneConcurrency, s.in.WorkerConcurrency = "2", "50%"
		s.in.Machines = []Machine{member("e1", "e"), member("c1", "c"), member("c2", "c"), member("c3", "c"), member("w1", "w"), member("w2", "w"), member("w3", "w")}
		s.machine("e1").Init = true
		for i := range s.in.Machines {
			s.in.Machines[i].Change = ChangeRestart
		}
		s.run("the version of a cluster with separate roles changes")
	},
	"a-plan-fails": func(s *sim) {
		s.broken["a"] = true
		s.in.Machines = []Machine{fresh("a", "ecw"), fresh("b", "w")}
		s.run("the first machine fails")
		s.broken["a"] = false
		s.machine("a").Change = ChangeRestart
		s.run("the cluster's author corrects the configuration")
	},
	"a-worker-fails-while-others-change": func(s *sim) {
		s.in.Bootstrapped = true
		s.in.Machines = []Machine{member("a", "ec"), member("w1", "w"), member("w2", "w"), member("w3", "w")}
		s.machine("a").Init = true
		for i := range s.in.Machines {
			s.in.Machines[i].Change = ChangeRestart
		}
		s.broken["w1"] = true
		s.run("the version changes and the first worker fails")
	},
	"the-init-node-goes": func(s *sim) {
		s.in.Bootstrapped = true
		s.in.Machines = []Machine{member("a", "ecw"), member("b", "ecw"), member("c", "ecw")}
		s.machine("a").Init = true
		s.run("a cluster of three at rest")
		s.machine("a").Deleting = true
		s.run("the init node is deleted")
		s.in.Machines = slices.DeleteFunc(s.in.Machines, func(m Machine) bool { return m.Name != "b" })
		s.machine("b").Deleting = true
		s.in.Machines = append(s.in.Machines, fresh("z", "ecw"))
		s.run("all of etcd goes and a stranger comes")
	},
	"the-first-machine-never-comes-up": func(s *sim) {
		s.silent["a"] = true
		s.in.Machines = []Machine{fresh("a", "ecw")}
		s.run("its agent never checks in")
		s.machine("a").Deleting = true
		s.in.Machines = append(s.in.Machines, fresh("b", "ecw"))
		s.run("it is deleted, and another registers")
	},
	"infrastructure-comes-late": func(s *sim) {
		s.in.Machines = []Machine{fresh("a", "ecw"), fresh("b", "w")}
		s.machine("b").Unusable = "has no infrastructure yet: LabMachine b is not provisioned"
		s.run("a machine has no infrastructure yet")
		s.machine("b").Unusable = ""
		s.run("it is there")
	},
	"a-machine-stays-unhealthy": func(s *sim) {
		s.sick["a"] = true
		s.in.Machines = []Machine{fresh("a", "ecw"), fresh("b", "ecw")}
		s.run("the first machine's probes stay unhealthy")
	},
	"paused": func(s *sim) {
		s.in.Bootstrapped, s.in.Paused = true, true
		s.in.Machines = []Machine{member("a", "ecw"), fresh("b", "w")}
		s.machine("a").Init = true
		s.machine("a").Change = ChangeMinor
		s.run("a paused cluster with changes")
		s.in.Paused = false
		s.run("it is resumed")
	},
	"no-plan-can-be-made": func(s *sim) {
		m := fresh("a", "ecw")
		m.Problem = "spec.rkeConfig.machineGlobalConfig.selinux: is a text; it takes true or false"
		s.in.Machines = []Machine{m}
		s.run("the configuration has an error")
	},
	"the-kubelet-lags": func(s *sim) {
		s.in.Bootstrapped = true
		m := member("a", "ecw")
		m.Init, m.Version, m.WantVersion = true, "v1.35.1+k3s1", "v1.36.3+k3s1"
		s.in.Machines = []Machine{m}
		s.run("the Node still reports the old version")
		s.machine("a").Version = "v1.36.3"
		s.run("it reports the new one")
	},
}

func TestSimulations(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := newSim()
			scenario(s)
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(s.log.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), s.log.String()); diff != "" {
				t.Errorf("%s differs; go test -update rewrites it (-want +got):\n%s", path, diff)
			}
			for seed := range uint64(20) {
				other := newSim()
				other.rand = rand.New(rand.NewPCG(seed, 1))
				scenario(other)
				if diff := cmp.Diff(s.log.String(), other.log.String()); diff != "" {
					t.Fatalf("in random order %d it goes another way:\n%s", seed, diff)
				}
			}
		})
	}
}
