package rollout

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEachRuleIsNeeded replaces rules and inputs one at a time; the checks of random simulations must fail for each.
func TestEachRuleIsNeeded(t *testing.T) {
	mutants := map[string]func(*testing.T, *randomSimulation){
		"tiers change at the same time":                withoutRules("earlierTierFirst"),
		"etcd takes several changes at a time":         withoutRules("etcdBusy"),
		"any number may be unavailable":                withoutRules("groupLimitReached"),
		"the quorum is not checked":                    withoutRules("quorumNeedsMachine"),
		"nodes are not drained":                        withoutRules("needsDrain"),
		"nodes are not uncordoned":                     withoutRules("needsUncordon"),
		"a machine joins a server that does not exist": withoutRules("lacksJoinURL"),
		"changes wait for their tier only":             withoutRules("etcdBusy", "groupLimitReached", "quorumNeedsMachine"),
		"new members join at the same time": func(t *testing.T, s *randomSimulation) {
			replace(t, s, "firstPlan", func(_ *view, m *Machine) (Decision, bool) {
				if m.Change != ChangeFirst {
					return undecided()
				}
				return deliver("Delivering the first plan")
			})
		},
		"members are removed at any time": func(_ *testing.T, s *randomSimulation) {
			s.remove = func(Inputs, string) Wait { return Wait{} }
		},
		"members are removed one at a time without regard to the quorum": func(_ *testing.T, s *randomSimulation) {
			s.remove = func(in Inputs, name string) Wait {
				if w := CheckRemoval(in, name); w.Reason == ReasonWaitingForOthers {
					return w
				}
				return Wait{}
			}
		},
		"any machine may become the init node": func(_ *testing.T, s *randomSimulation) {
			s.elect = func(machines []Machine, _ string, _ bool) Election {
				for _, m := range slices.SortedFunc(slices.Values(machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) }) {
					if m.Etcd && !m.Deleting && m.HasPlanSecret {
						return Election{Init: m.Name}
					}
				}
				return Election{}
			}
		},
		"a machine that does not vote may become the init node": func(_ *testing.T, s *randomSimulation) {
			s.elect = func(machines []Machine, id string, bootstrapped bool) Election {
				for i := range machines {
					if machines[i].Progress == ProgressApplied {
						machines[i].Membership = MemberVoter
					}
				}
				return Elect(machines, id, bootstrapped)
			}
		},
		"etcd counts as unhealthy if the Node is not ready": changeMachines(func(m *Machine, now time.Time) {
			if m.Node.Unready() {
				m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = MemberUnhealthy, now, ProbeUnhealthy
			}
		}),
		"outdated reports count": changeMachines(func(m *Machine, now time.Time) {
			m.LastSeen = now
			if m.MemberHealth != MemberHealthUnknown {
				m.MemberCheckedAt = now
			}
		}),
		"unknown etcd health counts as unhealthy": changeMachines(func(m *Machine, now time.Time) {
			if m.Etcd && m.Progress != ProgressNone && m.etcdState(now) == etcdUnknown {
				m.LastSeen, m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = now, MemberUnhealthy, now, ProbeUnhealthy
			}
		}),
		"unknown etcd health counts as healthy": changeMachines(func(m *Machine, now time.Time) {
			if m.Etcd && m.Progress != ProgressNone && m.etcdState(now) == etcdUnknown {
				m.LastSeen, m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = now, MemberHealthy, now, ProbeHealthy
			}
			if m.Node == NodeLost {
				m.Node = NodeReady
			}
		}),
		"reports of the etcd leader are ignored": changeMachines(func(m *Machine, _ time.Time) {
			m.MemberHealth = MemberHealthUnknown
			if m.Membership == MemberUnknown && m.JoinURL == "" {
				m.Membership = MemberLearner
			}
		}),
		"the probe of etcd is ignored": changeMachines(func(m *Machine, _ time.Time) { m.EtcdProbe = ProbeNone }),
		"a failed change of a member does not count as under way": changeMachines(func(m *Machine, _ time.Time) {
			if m.Progress == ProgressFailed {
				m.Underway = ChangeNone
			}
		}),
		"a change is delivered to an agent that is down": withoutRules("agentMissing"),
		"the hub does not know that the cluster was bootstrapped": func(_ *testing.T, s *randomSimulation) {
			s.elect = func(machines []Machine, id string, _ bool) Election {
				for i := range machines {
					machines[i].JoinURL, machines[i].Membership = "", MemberUnknown
				}
				return Elect(machines, id, false)
			}
		},
	}
	// Where few simulations need a rule, the first of them is near. Few need the probe, since the leader of etcd and the Node mostly say the
	// same.
	first := map[string]uint64{"the probe of etcd is ignored": 1390, "any machine may become the init node": 200,
		"a machine joins a server that does not exist": 300}
	for name, mutate := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(1000) {
				seed := first[name] + i
				s := newRandomSimulation(seed)
				mutate(t, s)
				s.run()
				if len(s.faults) > 0 {
					t.Logf("%s: simulation %d: %s", name, seed, strings.SplitN(s.faults[0], "\n", 2)[0])
					return
				}
			}
			t.Error("no check fails")
		})
	}
}

// changeMachines changes what the hub sees of each machine.
func changeMachines(change func(*Machine, time.Time)) func(*testing.T, *randomSimulation) {
	return func(_ *testing.T, s *randomSimulation) {
		s.changeInputs = func(in *Inputs) {
			for i := range in.Machines {
				change(&in.Machines[i], in.Now)
			}
		}
	}
}

// withoutRules disables rules.
func withoutRules(names ...string) func(*testing.T, *randomSimulation) {
	return func(t *testing.T, s *randomSimulation) {
		for _, name := range names {
			replace(t, s, name, func(*view, *Machine) (Decision, bool) { return undecided() })
		}
	}
}

func replace(t *testing.T, s *randomSimulation, name string, by rule) {
	s.rules = slices.Clone(s.rules)
	for i, l := range s.rules {
		if strings.HasSuffix(runtime.FuncForPC(reflect.ValueOf(l).Pointer()).Name(), "."+name) {
			s.rules[i] = by
			return
		}
	}
	t.Fatalf("rules has no rule %s", name)
}
