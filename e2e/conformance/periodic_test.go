//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"time"
)

// periodic is a plan's part.
func periodic(list ...obj) obj { return obj{"periodicInstructions": list} }

// every is a periodic instruction that counts its runs.
func every(seconds int, name, script string, with ...obj) obj {
	i := sh(name, "echo >>$M/"+name+"; "+script, append([]obj{{"periodSeconds": seconds}}, with...)...)
	delete(i, "saveOutput")
	return i
}

func init() {
	rules = append(rules,
		rule{name: "5/periodic/report", test: func(m *machine) {
			begun := time.Now().Truncate(time.Second)
			m.run(periodic(every(600, "p", "echo out; echo err >&2")))
			s := m.until("the report", func(s state) bool { _, found := s.periodic("p"); return found })
			p, _ := s.periodic("p")
			at, err := time.Parse(time.UnixDate, p.LastSuccessfulRunTime)
			if p.Name != "p" || string(p.Stdout) != "out\n" || len(p.Stderr) > 0 || p.ExitCode != 0 || p.Failures != 0 ||
				p.LastFailedRunTime != "" ||
				err != nil || at.Before(begun) {
				m.Errorf("the report is %+v", p)
			}
			var raw map[string]map[string]any
			_ = json.Unmarshal(s.unzip("applied-periodic-output"), &raw)
			for _, key := range []string{"name", "stdout", "stderr", "exitCode", "lastSuccessfulRunTime", "failures", "lastFailedRunTime"} {
				if _, found := raw["p"][key]; !found {
					m.Errorf("%s is missing in %v", key, raw)
				}
			}
		}},
		rule{name: "5/periodic/report-of-failure", test: func(m *machine) {
			m.run(periodic(every(600, "p", "echo out; exit 7")))
			s := m.until("the report", func(s state) bool { _, found := s.periodic("p"); return found })
			p, _ := s.periodic("p")
			if _, err := time.Parse(time.UnixDate, p.LastFailedRunTime); err != nil || p.ExitCode != 7 || p.Failures != 1 ||
				p.LastSuccessfulRunTime != "" || string(p.Stdout) != "out\n" {
				m.Errorf("the report is %+v", p)
			}
		}},
		rule{name: "5/periodic/standard-error", test: func(m *machine) {
			m.run(periodic(every(600, "p", "echo err >&2", obj{"saveStderrOutput": true})))
			s := m.until("the report", func(s state) bool { _, found := s.periodic("p"); return found })
			if p, _ := s.periodic("p"); string(p.Stderr) != "err\n" {
				m.Errorf("the report is %+v", p)
			}
		}},
		rule{name: "5/periodic/death-by-signal-is-minus-one", test: func(m *machine) {
			m.run(periodic(every(600, "p", "kill -9 $$")))
			s := m.until("the report", func(s state) bool { _, found := s.periodic("p"); return found })
			if p, _ := s.periodic("p"); p.ExitCode != -1 || p.Failures != 1 {
				m.Errorf("the report is %+v", p)
			}
		}},
		rule{name: "5/periodic/command-not-found-is-minus-one", test: func(m *machine) {
			m.run(periodic(obj{"name": "p", "command": "there-is-no-such-command"}))
			s := m.until("the report", func(s state) bool { _, found := s.periodic("p"); return found })
			if p, _ := s.periodic("p"); p.ExitCode != -1 || p.Failures != 1 {
				m.Errorf("the report is %+v", p)
			}
		}},
		rule{name: "5/periodic/period", timed: true, test: func(m *machine) {
			m.run(periodic(every(3, "p", "date +%s.%N >>$M/times")))
			m.until("four runs", func(state) bool { return m.lines("times") >= 4 })
			var at [4]float64
			if _, err := fmt.Sscan(m.read("times"), &at[0], &at[1], &at[2], &at[3]); err != nil {
				m.Fatalf("%s", err)
			}
			if pause := (at[3] - at[0]) / 3; pause < 2 || pause > 6 {
				m.Errorf("it ran every %.1f s", pause)
			}
		}},
		rule{name: "5/periodic/period-default-600s", test: func(m *machine) {
			m.run(periodic(every(0, "p", "")))
			m.until("a run", func(state) bool { return m.lines("p") == 1 })
			m.never(8*time.Second, "another run", func(state) bool { return m.lines("p") != 1 })
		}},
		rule{name: "5/periodic/runs-after-each-new-plan", test: func(m *machine) {
			p := periodic(every(600, "p", "echo $CATTLE_AGENT_ATTEMPT_NUMBER"))
			m.run(both(instructions(ran("a")), p))
			m.until("a run", func(state) bool { return m.lines("p") == 1 })
			m.run(both(instructions(ran("b")), p))
			s := m.until("another run, with the one-time instructions", func(state) bool { return m.lines("p") == 2 })
			if out, _ := s.periodic("p"); string(out.Stdout) != "1\n" {
				m.Errorf("the report is %+v", out)
			}
		}},
		rule{name: "5/periodic/also-after-a-failed-plan", test: func(m *machine) {
			m.fail(both(instructions(sh("a", "exit 1")), periodic(every(600, "p", ""))), map[string]string{"max-failures": "1"})
			m.until("a run", func(state) bool { return m.lines("p") == 1 })
		}},
		rule{name: "5/periodic/not-at-once-after-a-restart", test: func(m *machine) {
			plan := periodic(every(600, "p", ""))
			sum := m.deliver(plan, pendingState)
			m.start()
			m.until("a report", func(s state) bool { _, found := s.periodic("p"); return found && s.applied(sum) })
			m.restart()
			m.never(6*time.Second, "it runs before its time", func(state) bool { return m.lines("p") > 1 })
		}},
		rule{name: "5/periodic/pause-after-a-failure-30s", timed: true, test: func(m *machine) {
			m.run(periodic(every(1, "p", "date +%s >>$M/times; echo $CATTLE_AGENT_ATTEMPT_NUMBER; [ $(wc -l <$M/p) != 1 ]")))
			s := m.until("the second run", func(s state) bool { out, _ := s.periodic("p"); return m.lines("p") >= 2 && out.Failures == 0 })
			var first, second int64
			if _, err := fmt.Sscan(m.read("times"), &first, &second); err != nil {
				m.Fatalf("%s", err)
			}
			if pause := second - first; pause < 29 || pause > 40 {
				m.Errorf("the second run came after %d s", pause)
			}
			if out, _ := s.periodic("p"); out.LastSuccessfulRunTime == "" || out.LastFailedRunTime != "" {
				m.Errorf("the report is %+v", out)
			}
		}},
		rule{name: "5/periodic/pause-grows", timed: true, test: func(m *machine) {
			m.run(periodic(every(1, "p", "date +%s >>$M/times; echo $CATTLE_AGENT_ATTEMPT_NUMBER >>$M/attempts; exit 1")))
			m.until("the third run", func(state) bool { return m.lines("p") >= 3 && m.lines("attempts") >= 3 })
			var at [3]int64
			if _, err := fmt.Sscan(m.read("times"), &at[0], &at[1], &at[2]); err != nil {
				m.Fatalf("%s", err)
			}
			if first, second := at[1]-at[0], at[2]-at[1]; first < 29 || first > 40 || second < 59 || second > 75 {
				m.Errorf("the pauses were %d s and %d s", first, second)
			}
			m.holds("attempts", "1\n2\n3\n")
		}},
		rule{name: "5/periodic/failure-keeps-the-time-of-success", test: func(m *machine) {
			m.run(periodic(every(1, "p", "[ $(wc -l <$M/p) = 1 ]")))
			s := m.until("the failure", func(s state) bool { p, _ := s.periodic("p"); return p.Failures == 1 })
			if p, _ := s.periodic("p"); p.LastSuccessfulRunTime == "" || p.LastFailedRunTime == "" {
				m.Errorf("the report is %+v", p)
			}
		}},
		rule{name: "5/periodic/environment-and-folder", test: func(m *machine) {
			m.run(periodic(every(600, "p", `[ "$PWD" = "$CATTLE_AGENT_EXECUTION_PWD" ] && echo $A`, obj{"env": []string{"A=b"}})))
			m.until("the report", func(s state) bool { p, _ := s.periodic("p"); return string(p.Stdout) == "b\n" })
		}},
		rule{name: "5/periodic/failure-delays-no-other", better: "B18", timed: true, test: func(m *machine) {
			m.run(periodic(every(1, "p", "exit 1"), every(1, "q", "")))
			m.within(20*time.Second, "three runs of the other", func(state) bool { return m.lines("q") >= 3 })
		}},
		rule{name: "5/periodic/slow-one-delays-no-other", better: "B17", test: func(m *machine) {
			m.run(both(instructions(ran("a")), periodic(every(600, "q", ""))))
			m.deliver(periodic(every(600, "p", "sleep 60"), every(1, "r", "")))
			// Before the slow one has ended.
			m.within(min(m.patience, 50*time.Second), "three runs of the other", func(state) bool { return m.lines("r") >= 3 })
		}},
		rule{name: "5/periodic/slow-one-delays-no-plan", better: "B17", test: func(m *machine) {
			m.deliver(periodic(every(600, "p", "sleep 60")))
			m.start()
			m.until("the periodic instruction", func(state) bool { return m.lines("p") == 1 })
			begun := time.Now()
			m.run(instructions(ran("a")))
			if took := time.Since(begun); took > 45*time.Second { // of the 60 s that the slow one takes
				m.Errorf("the next plan took %s", took)
			}
		}},
	)
}
