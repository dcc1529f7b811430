//go:build conformance

package conformance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// cooldown is between two tries under the protocol with checksums; an agent that looks every few seconds takes a little longer.
const cooldown = 30 * time.Second

// ran is an instruction that counts how often it runs.
func ran(name string, more ...string) obj {
	return sh(name, "echo >>$M/"+name+";"+strings.Join(more, ";"))
}

func unixDate(t time.Time) string { return t.UTC().Format(time.UnixDate) }

// failedBefore are the keys of a plan that has failed already.
func failedBefore(plan obj, failures int, ago time.Duration) map[string]string {
	return map[string]string{"failed-checksum": checksum(encode(plan)), "failure-count": strconv.Itoa(failures),
		"last-apply-time": unixDate(time.Now().Add(-ago))}
}

func init() {
	rules = append(rules,
		rule{name: "3.1/keys/of-a-success", test: func(m *machine) {
			begun := time.Now().Truncate(time.Second)
			s := m.run(instructions(sh("a", "echo a")))
			for key, want := range map[string]string{"failed-checksum": "", "failure-count": "0", "success-count": "1", "failed-output": ""} {
				if got := s.text(key); got != want {
					m.Errorf("%s is %q and should be %q", key, got, want)
				}
			}
			applied, err := time.Parse(time.UnixDate, s.text("last-apply-time"))
			if err != nil || applied.Before(begun) || applied.After(time.Now()) {
				m.Errorf("last-apply-time is %q", s.text("last-apply-time"))
			}
			if got := string(s.unzip("applied-output")); got != `{"a":"YQo="}` {
				m.Errorf("applied-output is %s", got)
			}
		}},
		rule{name: "3.1/keys/of-a-failure", test: func(m *machine) {
			begun := time.Now().Truncate(time.Second)
			s := m.fail(instructions(sh("a", "echo a; exit 1")))
			for key, want := range map[string]string{"failure-count": "1", "success-count": "0"} {
				if got := s.text(key); got != want {
					m.Errorf("%s is %q and should be %q", key, got, want)
				}
			}
			applied, err := time.Parse(time.UnixDate, s.text("last-apply-time"))
			if err != nil || applied.Before(begun) || applied.After(time.Now()) {
				m.Errorf("last-apply-time is %q", s.text("last-apply-time"))
			}
			if s.text("applied-checksum") == s.text("failed-checksum") || s.outputs("failed-output")["a"] != "a\n" {
				m.Errorf("applied-checksum is %q, failed-output %v", s.text("applied-checksum"), s.outputs("failed-output"))
			}
		}},
		rule{name: "3.1/keys/successes-are-counted", test: func(m *machine) {
			m.run(instructions(sh("a", "echo 1")))
			if s := m.run(instructions(sh("a", "echo 2"))); s.text("success-count") != "2" || s.outputs("applied-output")["a"] != "2\n" {
				m.Errorf("success-count is %q, applied-output %v", s.text("success-count"), s.outputs("applied-output"))
			}
		}},
		rule{name: "3.1/keys/of-a-success-after-a-failure", test: func(m *machine) {
			m.fail(instructions(sh("a", "exit 1")))
			s := m.run(instructions(sh("a", "echo a")))
			if s.text("failed-checksum") != "" || s.text("failure-count") != "0" || s.text("failed-output") != "" || s.text("success-count") != "1" {
				m.Errorf("the failure is still there:\n%s", s)
			}
		}},
		rule{name: "3.1/secret/foreign-things-stay", test: func(m *machine) {
			s := m.run(instructions(sh("a", "echo a")), map[string]string{"appliedPlan": "{}", "failure-threshold": "7", "of-others": "x"})
			if s.text("appliedPlan") != "{}" || s.text("failure-threshold") != "7" || s.text("of-others") != "x" ||
				s.text("probe-period-seconds") != "1" {
				m.Errorf("keys of others changed:\n%s", s)
			}
			if o := s.object; string(o.Type) != secretType || o.Labels[secretLabel] != "m" || o.Annotations[secretAnnotation] != "then" {
				m.Errorf("the object changed: %s %v %v", o.Type, o.Labels, o.Annotations)
			}
		}},
		rule{name: "3.1/secret/plan-is-never-written", test: func(m *machine) {
			plan := `{ "instructions" : [ ] }` + "\n"
			sum := m.deliverRaw(plan)
			m.start()
			if s := m.until("success", func(s state) bool { return s.applied(sum) }); s.text("plan") != plan {
				m.Errorf("the plan is now %q", s.text("plan"))
			}
		}},
		rule{name: "3.1/secret/no-plan-yet", test: func(m *machine) {
			m.set(map[string]string{"of-others": "x"})
			m.start()
			time.Sleep(2 * time.Second)
			m.run(m.files(m.file("f", "x")))
		}},
		rule{name: "3.1/secret/not-there-yet", test: func(m *machine) {
			m.start()
			time.Sleep(2 * time.Second)
			m.run(m.files(m.file("f", "x")))
		}},
		rule{name: "3.1/secret/annotation-starts-nothing", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.annotate(secretAnnotation, "now")
			m.never(4*time.Second, "the plan ran again", func(state) bool { return m.lines("a") != 1 })
		}},
		rule{name: "3.3/watch/new-plan-while-it-runs", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.run(instructions(ran("b")))
			m.run(instructions(ran("c")))
			if m.lines("a") != 1 || m.lines("b") != 1 || m.lines("c") != 1 {
				m.Errorf("they ran %d, %d and %d times", m.lines("a"), m.lines("b"), m.lines("c"))
			}
		}},
		rule{name: "3.3/watch/new-plan-during-the-old-one", test: func(m *machine) {
			m.deliver(instructions(ran("a", "while [ ! -e $M/go ]; do sleep 0.1; done")))
			m.start()
			m.until("the first plan", func(state) bool { return m.lines("a") == 1 })
			sum := m.deliver(instructions(ran("b")))
			m.write("go", "")
			m.until("success of the second plan", func(s state) bool { return s.applied(sum) })
			if m.lines("b") != 1 {
				m.Errorf("it ran %d times", m.lines("b"))
			}
		}},
		rule{name: "3.3/watch/secret-deleted-and-made-again", test: func(m *machine) {
			plan := instructions(ran("a"))
			m.run(plan)
			m.deleteSecret()
			time.Sleep(2 * time.Second)
			sum := m.deliver(plan)
			m.until("success", func(s state) bool { return s.applied(sum) && m.lines("a") == 2 })
		}},
		rule{name: "3.3/watch/secret-made-again-claims-to-be-applied", test: func(m *machine) {
			plan := instructions(ran("a"))
			m.run(plan)
			m.deleteSecret()
			time.Sleep(2 * time.Second)
			m.deliver(plan, map[string]string{"applied-checksum": checksum(encode(plan))})
			m.until("another run, as the Secret is another one", func(state) bool { return m.lines("a") == 2 })
		}},
		rule{name: "3.3/watch/ends-and-restarts", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.proxy.CloseClientConnections()
			time.Sleep(time.Second)
			m.run(instructions(ran("b")))
			if m.lines("a") != 1 {
				m.Errorf("the first plan ran %d times", m.lines("a"))
			}
		}},
		rule{name: "3.4/checksum/applied-plan-stays-applied", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.never(6*time.Second, "the plan ran again", func(state) bool { return m.lines("a") != 1 })
		}},
		rule{name: "3.4/checksum/first-start-applies-what-counts-as-applied", test: func(m *machine) {
			plan := instructions(ran("a"))
			m.deliver(plan, map[string]string{"applied-checksum": checksum(encode(plan)), "success-count": "4", "failure-count": "0"})
			m.start()
			m.until("a run", func(s state) bool { return m.lines("a") == 1 && s.text("success-count") == "5" })
		}},
		rule{name: "3.4/checksum/restart-does-not-apply-again", better: "B5", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.restart()
			m.never(5*time.Second, "the plan ran again", func(state) bool { return m.lines("a") != 1 })
		}},
		rule{name: "3.4/checksum/plan-of-before", test: func(m *machine) {
			m.run(instructions(ran("a")))
			m.run(instructions(ran("b")))
			sum := m.deliver(instructions(ran("a")))
			m.until("success", func(s state) bool { return s.applied(sum) && m.lines("a") == 2 })
		}},
		rule{name: "3.4/checksum/cooldown-30s", timed: true, test: func(m *machine) {
			plan := instructions(ran("a", "date +%s >>$M/times", "exit 1"))
			m.fail(plan)
			m.until("the second failure", func(s state) bool { return s.text("failure-count") == "2" })
			var first, second int64
			if _, err := fmt.Sscan(m.read("times"), &first, &second); err != nil {
				m.Fatalf("%s", err)
			}
			if pause := time.Duration(second-first) * time.Second; pause < cooldown-time.Second || pause > cooldown+10*time.Second {
				m.Errorf("the second try came after %s", pause)
			}
		}},
		rule{name: "3.4/checksum/cooldown-from-last-apply-time", timed: true, test: func(m *machine) {
			plan := instructions(ran("a", "exit 1"))
			begun := time.Now()
			m.deliver(plan, failedBefore(plan, 3, 20*time.Second))
			m.start()
			m.until("a try", func(state) bool { return m.lines("a") == 1 })
			if pause := time.Since(begun); pause < 8*time.Second || pause > 20*time.Second {
				m.Errorf("the try came after %s", pause)
			}
		}},
		rule{name: "3.4/checksum/failures-are-counted-on", test: func(m *machine) {
			plan := instructions(ran("a", "exit 1"))
			m.deliver(plan, failedBefore(plan, 3, time.Hour))
			m.start()
			m.until("one more failure", func(s state) bool { return s.text("failure-count") == "4" })
		}},
		rule{name: "3.4/checksum/attempt-is-failures-plus-one", test: func(m *machine) {
			plan := instructions(ran("a", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts"))
			m.run(plan, failedBefore(plan, 3, time.Hour))
			m.holds("attempts", "4\n")
		}},
		rule{name: "3.4/checksum/attempts-differ", test: func(m *machine) {
			plan := instructions(ran("a", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts; [ $(wc -l <$M/a) = 2 ]"))
			sum := m.deliver(plan)
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
			m.holds("attempts", "1\n2\n")
		}},
		rule{name: "3.4/checksum/new-plan-waits-for-no-cooldown", timed: true, test: func(m *machine) {
			m.fail(instructions(sh("a", "exit 1")))
			begun := time.Now()
			m.run(instructions(ran("b")))
			if took := time.Since(begun); took > 15*time.Second {
				m.Errorf("it took %s", took)
			}
		}},
		rule{name: "3.4/checksum/max-failures", test: func(m *machine) {
			plan := instructions(ran("a", "exit 1"))
			m.fail(plan, map[string]string{"max-failures": "1"})
			m.never(cooldown+8*time.Second, "it was tried once more than it may", func(state) bool { return m.lines("a") > 1 })
		}},
		rule{name: "3.4/checksum/max-failures-reached-before", test: func(m *machine) {
			plan := instructions(ran("a", "exit 1"))
			m.deliver(plan, failedBefore(plan, 3, time.Hour), map[string]string{"max-failures": "3"})
			m.start()
			m.never(5*time.Second, "it was tried once more than it may", func(state) bool { return m.lines("a") > 0 })
		}},
		rule{name: "3.4/checksum/max-failures-survives-restart", test: func(m *machine) {
			m.fail(instructions(ran("a", "exit 1")), map[string]string{"max-failures": "1"})
			m.restart()
			m.never(5*time.Second, "it was tried once more than it may", func(state) bool { return m.lines("a") > 1 })
		}},
		rule{name: "3.4/checksum/max-failures-reached-then-a-new-plan", test: func(m *machine) {
			m.fail(instructions(sh("a", "exit 1")), map[string]string{"max-failures": "1"})
			m.run(instructions(ran("b")))
		}},
		unlimited("absent", ""), unlimited("minus-one", "-1"), unlimited("not-a-number", "many"),
		rule{name: "3.4/checksum/periodic-goes-on-after-failures", test: func(m *machine) {
			plan := both(instructions(sh("a", "exit 1")), obj{"periodicInstructions": []obj{sh("p", "echo >>$M/p", obj{"periodSeconds": 1})}})
			m.fail(plan, map[string]string{"max-failures": "1"})
			m.until("three runs", func(state) bool { return m.lines("p") >= 3 })
		}},
		rule{name: "3.4/checksum/output-of-the-failed-try-is-replaced", test: func(m *machine) {
			plan := instructions(ran("a", "wc -l <$M/a; exit 1"))
			m.fail(plan)
			s := m.until("the second failure", func(s state) bool { return s.text("failure-count") == "2" })
			if got := strings.TrimSpace(s.outputs("failed-output")["a"]); got != "2" {
				m.Errorf("failed-output is %q", got)
			}
		}},
		rule{name: "3.4/checksum/killed-in-the-middle", test: func(m *machine) {
			sum := m.deliver(instructions(ran("a"), ran("b", "echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts", "[ -e $M/go ] || sleep 30"),
				ran("c")))
			m.start()
			m.until("the second instruction", func(state) bool { return m.lines("attempts") == 1 })
			m.kill()
			m.write("go", "")
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
			if !regexp.MustCompile(`^1\n1\n$`).MatchString(m.read("attempts")) || m.lines("c") != 1 {
				m.Errorf("the attempts were %q, and the rest ran %d times", m.read("attempts"), m.lines("c"))
			}
		}},
		rule{name: "3.4/checksum/killed-in-the-middle-repeats-nothing", better: "crash", test: func(m *machine) {
			resumes(m, m.deliver(instructions(ran("a"), ran("b", "[ -e $M/go ] || sleep 30"))))
		}},
	)
}

// unlimited is a rule about a limit that is none.
func unlimited(name, value string) rule {
	return rule{name: "3.4/checksum/max-failures-" + name, test: func(m *machine) {
		plan := instructions(ran("a", "exit 1"))
		m.deliver(plan, failedBefore(plan, 50, time.Hour), map[string]string{"max-failures": value})
		m.start()
		m.until("a try", func(s state) bool { return s.text("failure-count") == "51" })
	}}
}

// resumes kills the agent in the instruction b and watches that a is not repeated.
func resumes(m *machine, sum string) {
	m.start()
	m.until("the second instruction", func(state) bool { return m.lines("b") == 1 })
	m.kill()
	m.write("go", "")
	m.start()
	m.until("success", func(s state) bool { return s.applied(sum) })
	if m.lines("a") != 1 || m.lines("b") != 2 {
		m.Errorf("they ran %d and %d times", m.lines("a"), m.lines("b"))
	}
}
