package operation

import (
	"slices"
	"strings"
	"testing"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestEachRuleIsNeeded replaces what the hub goes by, one at a time; the checks of random simulations must fail for each.
func TestEachRuleIsNeeded(t *testing.T) {
	mutants := map[string]func(*simulation){
		"changes do not wait for operations": func(s *simulation) {
			s.rules.holds = func(operationv1.Operation, bool) string { return "" }
		},
		"restarts do not wait for another rotation of the token": func(s *simulation) {
			s.rules.holds = func(op operationv1.Operation, _ bool) string { return Holds(op, false) }
		},
		"the last operation comes first": func(s *simulation) {
			s.rules.next = func(waiting []operationv1.Operation) operationv1.Operation {
				if len(waiting) == 0 {
					return nil
				}
				return waiting[len(waiting)-1]
			}
		},
		"tasks that restart machines are delivered at once": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				d := Decide(op, in)
				for name, task := range d.Tasks {
					task.Regardless = true
					d.Tasks[name] = task
				}
				return d
			}
		},
		"a restart for an operation does not count as one": func(s *simulation) {
			s.rules.change = func(before, after plan) rollout.Change {
				before.task, after.task = "", ""
				return changeBetween(before, after)
			}
		},
		"a restore is not exclusive": func(s *simulation) {
			s.rules.exclusive = func(operationv1.Operation) bool { return false }
			s.rules.stopped = func(plan) bool { return false }
		},
		"machines that a restore has stopped get their plans": func(s *simulation) {
			s.rules.stopped = func(plan) bool { return false }
		},
		"the restored machine is not designated": func(s *simulation) {
			s.rules.target = func(operationv1.Operation) string { return "" }
		},
		"servers keep their data in a restore":    func(s *simulation) { s.rules.leaveData = true },
		"plans are written before the status":     func(s *simulation) { s.rules.plansFirst = true },
		"tasks do not wait for the tokens":        func(s *simulation) { s.rules.tokensAnyway = true },
		"an outdated operation counts":            func(s *simulation) { s.rules.trustCache = true },
		"a restore does not wait for servers":     withKind(func(k *kind) { k.eachStep(func(p *step) { p.optional = nil; p.timeout = 0 }) }),
		"servers do not restart with a new key":   withKind(func(k *kind) { k.withoutSteps(operationv1.StepRestart) }),
		"new tokens are not written before":       withKind(func(k *kind) { k.withoutSteps(operationv1.StepConfigure) }),
		"servers do not restart with a new token": withKind(func(k *kind) { k.withoutSteps(operationv1.StepRestartServers) }),
		"a restore does not stop machines":        withKind(func(k *kind) { k.withoutSteps(operationv1.StepShutdown) }),
		"a snapshot does not wait for restarts": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				e := newEngine(op, in)
				if _, is := op.(*operationv1.ETCDSnapshotSave); is {
					e.kind.begin = func(Inputs) problem { return problem{} }
				}
				return e.decide()
			}
		},
		"a deletion does not wait for restarts": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				if _, is := op.(*operationv1.ETCDSnapshotDelete); is && op.CommonStatus().Phase != operationv1.PhaseInProgress {
					for i := range in.Machines {
						in.Machines[i].ProbesPassed = true
					}
				}
				return Decide(op, in)
			}
		},
		"a snapshot that is to be restored is deleted": func(s *simulation) {
			s.rules.refuse = func(operationv1.Operation, []operationv1.Operation, time.Time) bool { return false }
		},
		"machines do not delete files": func(s *simulation) {
			s.rules.deleteListed = true
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				in.Deletion.Listed = in.Deletion.Listed && op.CommonStatus().Step == ""
				e := newEngine(op, in)
				e.kind.withoutSteps(operationv1.StepDelete)
				return e.decide()
			}
		},
		"an ETCDSnapshot is deleted while its file is listed": func(s *simulation) {
			s.rules.deleteListed = true
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				in.Deletion.Listed = in.Deletion.Listed && op.CommonStatus().Step == ""
				return Decide(op, in)
			}
		},
		"nothing has a time limit": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				in.Since = in.Now
				return Decide(op, in)
			}
		},
		"a pause is ignored": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				e := newEngine(op, in)
				unpaused := *e.spec
				unpaused.Paused = false
				e.spec = &unpaused
				return e.decide()
			}
		},
		"a cancelation is ignored": func(s *simulation) {
			s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
				e := newEngine(op, in)
				resumed := *e.spec
				resumed.Cancel = false
				e.spec = &resumed
				return e.decide()
			}
		},
	}
	// Where few simulations need a rule, the first of them is near.
	first := map[string]uint64{"a deletion does not wait for restarts": 100, "an outdated operation counts": 70,
		"a snapshot does not wait for restarts": 45, "an ETCDSnapshot is deleted while its file is listed": 380, "nothing has a time limit": 35}
	for name, mutate := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range uint64(300) {
				seed := first[name] + i
				s := newRandomSimulation(seed)
				mutate(s)
				s.run()
				if len(s.faults) > 0 {
					t.Logf("simulation %d: %s", seed, strings.SplitN(s.faults[0], "\n", 2)[0])
					return
				}
			}
			t.Error("no check fails")
		})
	}
}

// withKind changes how operations of each kind go.
func withKind(change func(*kind)) func(*simulation) {
	return func(s *simulation) {
		s.rules.decide = func(op operationv1.Operation, in Inputs) Decision {
			e := newEngine(op, in)
			change(&e.kind)
			return e.decide()
		}
	}
}

func (k *kind) eachStep(change func(*step)) {
	for i := range k.steps {
		change(&k.steps[i])
	}
}

func (k *kind) withoutSteps(names ...string) {
	var steps []step
	for _, s := range k.steps {
		if !slices.Contains(names, s.name) {
			steps = append(steps, s)
		}
	}
	k.steps = steps
}
