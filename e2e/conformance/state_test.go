//go:build conformance

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// inState delivers a plan that is in a state already.
func (m *machine) inState(plan obj, name string, more ...map[string]string) string {
	return m.deliver(plan, append([]map[string]string{{"plan-state": name}}, more...)...)
}

// states are the values of plan-state that the Secret has had, without repetitions.
func (m *machine) states() string {
	var out []string
	for _, s := range m.history() {
		out = append(out, s.text("plan-state"))
	}
	return strings.Join(slices.Compact(out), " ")
}

var pendingState = map[string]string{"plan-state": "pending"}

func init() {
	once := map[string]string{"plan-state": "pending", "max-failures": "1"}
	rules = append(rules,
		rule{name: "3.5/plan-state/pending-to-in-progress", test: func(m *machine) {
			m.pending(instructions(ran("a", "while [ ! -e $M/go ]; do sleep 0.1; done")))
			m.start()
			m.until("the instruction", func(state) bool { return m.lines("a") == 1 })
			if s := m.until("in-progress", func(s state) bool { return s.text("plan-state") == "in-progress" }); s.text("plan-revision") != "1" {
				m.Errorf("plan-revision is %q", s.text("plan-revision"))
			}
			m.write("go", "")
			m.until("success", func(s state) bool { return s.text("plan-state") == "succeeded" })
			if got := m.states(); got != "pending in-progress succeeded" {
				m.Errorf("the states were %s", got)
			}
		}},
		rule{name: "3.5/plan-state/in-progress-before-anything-is-done", test: func(m *machine) {
			m.proxy.intercept(refuseWrites(500))
			m.pending(both(m.files(m.file("f", "x")), instructions(ran("a"))))
			m.start()
			m.never(5*time.Second, "the plan is carried out although nobody could be told",
				func(state) bool { return m.exists("a") || m.exists("f") })
		}},
		rule{name: "3.5/plan-state/revision-grows", test: func(m *machine) {
			m.start()
			for i, want := range []string{"1", "2", "3"} {
				m.pending(instructions(ran("a", fmt.Sprint("echo ", i))))
				m.until("success", func(s state) bool { return s.text("plan-state") == "succeeded" && s.text("plan-revision") == want })
				if m.lines("a") != i+1 {
					m.Errorf("it ran %d times and should have run %d times", m.lines("a"), i+1)
				}
			}
		}},
		rule{name: "3.5/plan-state/keys-of-a-success", test: func(m *machine) {
			s := m.run(instructions(sh("a", "echo a")), pendingState)
			for key, want := range map[string]string{"plan-state": "succeeded", "failed-checksum": "", "failure-count": "0", "failed-output": ""} {
				if got := s.text(key); got != want {
					m.Errorf("%s is %q and should be %q", key, got, want)
				}
			}
			if _, err := time.Parse(time.UnixDate, s.text("last-apply-time")); err != nil || s.outputs("applied-output")["a"] != "a\n" {
				m.Errorf("last-apply-time is %q, applied-output %v", s.text("last-apply-time"), s.outputs("applied-output"))
			}
		}},
		rule{name: "3.5/plan-state/keys-of-a-failure", test: func(m *machine) {
			sum := m.deliver(instructions(sh("a", "echo a; exit 1")), once)
			m.start()
			m.until("failure", func(s state) bool { return s.text("plan-state") == "failed" })
			if !slices.ContainsFunc(m.history(), func(s state) bool {
				return s.text("plan-state") == "failed" && s.failed(sum) && s.outputs("failed-output")["a"] == "a\n"
			}) {
				m.Errorf("failed-checksum, failure-count and failed-output did not come with the state")
			}
		}},
		rule{name: "3.5/plan-state/failure-stays-to-be-seen", better: "B1", test: func(m *machine) {
			sum := m.deliver(instructions(sh("a", "echo a; exit 1")), once)
			m.start()
			m.until("failure", func(s state) bool { return s.text("plan-state") == "failed" })
			m.never(6*time.Second, "the failure is gone", func(s state) bool {
				return !s.failed(sum) || s.text("applied-checksum") == sum || s.outputs("failed-output")["a"] != "a\n"
			})
		}},
		rule{name: "3.5/plan-state/failed-is-the-end", test: func(m *machine) {
			m.deliver(instructions(ran("a", "exit 1")), once)
			m.start()
			m.until("failure", func(s state) bool { return s.text("plan-state") == "failed" })
			m.never(8*time.Second, "it was retried", func(state) bool { return m.lines("a") > 1 })
			m.restart()
			m.never(4*time.Second, "it was retried after a restart", func(state) bool { return m.lines("a") > 1 })
		}},
		rule{name: "3.5/plan-state/a-failure-that-passes", better: "B2", test: func(m *machine) {
			s := m.run(instructions(ran("a", "[ $(wc -l <$M/a) = 2 ]")), map[string]string{"plan-state": "pending", "max-failures": "3"})
			if got := m.states(); got != "pending in-progress succeeded" || s.text("plan-revision") != "1" {
				m.Errorf("the states were %s, plan-revision is %q", got, s.text("plan-revision"))
			}
		}},
		rule{name: "3.5/plan-state/max-failures-is-the-budget", better: "B2", test: func(m *machine) {
			m.deliver(instructions(ran("a", "exit 1")), map[string]string{"plan-state": "pending", "max-failures": "3"})
			m.start()
			if s := m.until("failure", func(s state) bool { return s.text("plan-state") == "failed" }); m.lines("a") != 3 ||
				s.text("failure-count") != "3" {
				m.Errorf("it was tried %d times, failure-count is %q", m.lines("a"), s.text("failure-count"))
			}
		}},
		rule{name: "3.5/plan-state/attempts-grow-with-each-delivery", better: "B3", test: func(m *machine) {
			plan := instructions(ran("a", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts; [ -e $M/good ]"))
			m.deliver(plan, once)
			m.start()
			m.until("failure", func(s state) bool { return s.text("plan-state") == "failed" })
			m.write("good", "")
			m.run(plan, once)
			m.holds("attempts", "1\n2\n")
		}},
		rule{name: "3.5/plan-state/attempts-grow-with-each-try", better: "B3", test: func(m *machine) {
			m.run(instructions(ran("a", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts; [ $(wc -l <$M/a) = 2 ]")), pendingState)
			m.holds("attempts", "1\n2\n")
		}},
		rule{name: "3.5/plan-state/in-progress-is-carried-out", test: func(m *machine) {
			m.inState(instructions(ran("a")), "in-progress", map[string]string{"plan-revision": "4"})
			m.start()
			if s := m.until("success", func(s state) bool { return s.text("plan-state") == "succeeded" }); m.lines("a") != 1 ||
				s.text("plan-revision") != "4" {
				m.Errorf("it ran %d times, plan-revision is %q", m.lines("a"), s.text("plan-revision"))
			}
		}},
		rule{name: "3.5/plan-state/in-progress-attempt-is-failures-plus-one", test: func(m *machine) {
			m.inState(instructions(ran("a", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts")), "in-progress",
				map[string]string{"plan-revision": "1", "failure-count": "2"})
			m.start()
			m.until("success", func(s state) bool { return s.text("plan-state") == "succeeded" })
			m.holds("attempts", "3\n")
		}},
		terminal("succeeded"), terminal("failed"), terminal("cancelled"),
		rule{name: "3.5/plan-state/content-alone-starts-nothing", test: func(m *machine) {
			m.run(instructions(ran("a")), pendingState)
			m.deliver(instructions(ran("b")))
			m.never(5*time.Second, "a plan ran that nobody set pending", func(state) bool { return m.exists("b") })
		}},
		rule{name: "3.5/plan-state/same-plan-pending-again", test: func(m *machine) {
			m.run(instructions(ran("a")), pendingState)
			m.set(pendingState)
			m.until("success of the second run", func(s state) bool { return s.text("plan-state") == "succeeded" && s.text("plan-revision") == "2" })
			if m.lines("a") != 2 {
				m.Errorf("it ran %d times", m.lines("a"))
			}
		}},
		rule{name: "3.5/plan-state/restart-does-not-apply-again", test: func(m *machine) {
			m.run(instructions(ran("a")), pendingState)
			m.restart()
			m.never(5*time.Second, "the plan ran again", func(state) bool { return m.lines("a") != 1 })
		}},
		rule{name: "3.5/plan-state/from-checksums-to-states", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.run(instructions(ran("b")), pendingState)
			if s := m.now(); s.text("plan-state") != "succeeded" || m.lines("b") != 1 {
				m.Errorf("plan-state is %q after %d runs", s.text("plan-state"), m.lines("b"))
			}
		}},
		rule{name: "3.5/plan-state/periodic-and-probes-in-a-terminal-state", test: func(m *machine) {
			site := newSite(m)
			plan := both(probes("p", obj{"httpGet": obj{"url": site.URL}}),
				obj{"periodicInstructions": []obj{sh("q", "echo >>$M/q", obj{"periodSeconds": 1})}})
			m.inState(plan, "failed")
			m.start()
			m.until("both", func(s state) bool {
				probe, _ := s.probe("p")
				return probe.Healthy && m.lines("q") >= 2
			})
		}},
		rule{name: "3.5/plan-state/killed-in-the-middle", test: func(m *machine) {
			sum := m.pending(instructions(ran("a"), ran("b", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts", "[ -e $M/go ] || sleep 30"),
				ran("c")))
			m.start()
			m.until("the second instruction", func(state) bool { return m.lines("attempts") == 1 })
			m.kill()
			m.write("go", "")
			m.start()
			if s := m.until("success", func(s state) bool { return s.applied(sum) }); s.text("plan-revision") != "1" || m.lines("c") != 1 {
				m.Errorf("plan-revision is %q, and the rest ran %d times", s.text("plan-revision"), m.lines("c"))
			}
			m.holds("attempts", "1\n1\n")
		}},
		rule{name: "3.5/plan-state/killed-in-the-middle-repeats-nothing", better: "crash", test: func(m *machine) {
			resumes(m, m.pending(instructions(ran("a"), ran("b", "[ -e $M/go ] || sleep 30"))))
		}},
	)
}

// terminal is a rule about a state in which nothing is applied.
func terminal(name string) rule {
	return rule{name: "3.5/plan-state/" + name + "-is-terminal", test: func(m *machine) {
		m.inState(both(m.files(m.file("f", "x")), instructions(ran("a"))), name)
		m.start()
		m.never(5*time.Second, "the plan was carried out", func(s state) bool {
			return m.exists("a") || m.exists("f") || s.text("plan-state") != name && s.object != nil && s.text("plan-state") != ""
		})
	}}
}
