package rollout

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every rule matters: a world in which one is missing breaks something that somebody sees.
func TestMissingRulesAreSeen(t *testing.T) {
	mutants := map[string]func(*testing.T, *chaos){
		"tiers change at the same time":           without("earlierTierFirst"),
		"etcd takes several changes at a time":    without("etcdBusy"),
		"any number may be unavailable":           without("groupLimitReached"),
		"the quorum is not looked at":             without("quorumNeedsMachine"),
		"nodes are not drained":                   without("needsDrain"),
		"nodes are not taken back from a drain":   without("needsUncordon"),
		"a machine joins what is not there":       without("lacksJoinURL"),
		"changes wait for nothing but their turn": without("etcdBusy", "groupLimitReached", "quorumNeedsMachine"),
		"new members join all at once": func(t *testing.T, _ *chaos) {
			replace(t, "firstPlan", func(_ *view, m Machine) (Decision, bool) {
				if m.Change != ChangeFirst {
					return undecided()
				}
				return deliver("Delivering the first plan")
			})
		},
		"members are removed at any time": func(_ *testing.T, c *chaos) {
			c.remove = func(Inputs, string) Wait { return Wait{} }
		},
		"members are removed one at a time, whatever the quorum": func(_ *testing.T, c *chaos) {
			c.remove = func(in Inputs, name string) Wait {
				if w := CheckRemoval(in, name); w.Reason == ReasonWaitingForOthers {
					return w
				}
				return Wait{}
			}
		},
		"any machine may follow the init node": func(_ *testing.T, c *chaos) {
			c.elect = func(machines []Machine, _ string, _ bool) Election {
				for _, m := range slices.SortedFunc(slices.Values(machines), func(a, b Machine) int { return strings.Compare(a.Name, b.Name) }) {
					if m.Etcd && !m.Deleting && m.HasPlanSecret {
						return Election{Init: m.Name}
					}
				}
				return Election{}
			}
		},
		"a machine that works may follow the init node, voter or not": func(_ *testing.T, c *chaos) {
			c.elect = func(machines []Machine, id string, bootstrapped bool) Election {
				for i := range machines {
					if machines[i].Progress == ProgressApplied {
						machines[i].Membership = MemberVoter
					}
				}
				return Elect(machines, id, bootstrapped)
			}
		},
		"a Node that is not ready has no etcd": seeing(func(m *Machine, now time.Time) {
			if m.Node.Unready() {
				m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = MemberUnhealthy, now, ProbeUnhealthy
			}
		}),
		"old evidence counts": seeing(func(m *Machine, now time.Time) {
			m.LastSeen = now
			if m.MemberHealth != MemberHealthUnknown {
				m.MemberCheckedAt = now
			}
		}),
		"what is suspect is down": seeing(func(m *Machine, now time.Time) {
			if m.Etcd && m.Progress != ProgressNone && m.etcdState(now) == etcdUnknown {
				m.LastSeen, m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = now, MemberUnhealthy, now, ProbeUnhealthy
			}
		}),
		"what is suspect is up": seeing(func(m *Machine, now time.Time) {
			if m.Etcd && m.Progress != ProgressNone && m.etcdState(now) == etcdUnknown {
				m.LastSeen, m.MemberHealth, m.MemberCheckedAt, m.EtcdProbe = now, MemberHealthy, now, ProbeHealthy
			}
			if m.Node == NodeLost {
				m.Node = NodeReady
			}
		}),
		"the leader of etcd is not asked": seeing(func(m *Machine, _ time.Time) {
			m.MemberHealth = MemberHealthUnknown
			if m.Membership == MemberUnknown && m.JoinURL == "" {
				m.Membership = MemberLearner
			}
		}),
		"the agent is not asked": seeing(func(m *Machine, _ time.Time) { m.EtcdProbe = ProbeNone }),
		"a member whose change has failed is left to itself": seeing(func(m *Machine, _ time.Time) {
			if m.Progress == ProgressFailed {
				m.Underway = ChangeNone
			}
		}),
		"a change goes to an agent that is not there": without("agentMissing"),
		"the hub forgets that a cluster was started": func(_ *testing.T, c *chaos) {
			c.elect = func(machines []Machine, id string, _ bool) Election {
				for i := range machines {
					machines[i].JoinURL, machines[i].Membership = "", MemberUnknown
				}
				return Elect(machines, id, false)
			}
		},
	}
	for name, mutate := range mutants {
		t.Run(name, func(t *testing.T) {
			whole := slices.Clone(rules)
			defer func() { rules = whole }()
			for seed := range uint64(1000) {
				rules = slices.Clone(whole)
				c := newChaos(seed)
				mutate(t, c)
				c.live()
				if len(c.faults) > 0 {
					t.Logf("%s: world %d: %s", name, seed, strings.SplitN(c.faults[0], "\n", 2)[0])
					return
				}
			}
			t.Error("nobody notices")
		})
	}
}

// seeing changes what the hub is shown of each machine.
func seeing(change func(*Machine, time.Time)) func(*testing.T, *chaos) {
	return func(_ *testing.T, c *chaos) {
		c.see = func(in *Inputs) {
			for i := range in.Machines {
				change(&in.Machines[i], in.Now)
			}
		}
	}
}

// without takes rules out of the chain.
func without(names ...string) func(*testing.T, *chaos) {
	return func(t *testing.T, _ *chaos) {
		for _, name := range names {
			replace(t, name, func(*view, Machine) (Decision, bool) { return undecided() })
		}
	}
}

func replace(t *testing.T, name string, by rule) {
	for i, l := range rules {
		if strings.HasSuffix(runtime.FuncForPC(reflect.ValueOf(l).Pointer()).Name(), "."+name) {
			rules[i] = by
			return
		}
	}
	t.Fatalf("rules has no rule %s", name)
}
