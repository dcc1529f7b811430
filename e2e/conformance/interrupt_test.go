//go:build conformance

package conformance

import (
	"encoding/json"
	"strconv"
	"time"
)

const (
	paused   = "plan.cattle.io/paused"
	canceled = "plan.cattle.io/canceled"
)

// interrupt is a rule about the annotations by which a plan is interrupted. The first agent's released versions do not know them.
func interrupt(name string, test func(*machine)) rule {
	return rule{name: "3.7/interrupt/" + name, better: "interrupt", test: test}
}

// soon is a rule about an agent that hears of a change while an instruction runs, which nobody sees.
func soon(r rule) rule {
	r.timed = true
	return r
}

// annotated delivers a pending plan that is interrupted from the beginning.
func (m *machine) annotated(plan obj, name, value string) string {
	m.set(map[string]string{"of-others": "x"})
	m.annotate(name, value)
	return m.pending(plan)
}

func inState(name string) func(state) bool {
	return func(s state) bool { return s.text("plan-state") == name }
}

// pauseAfterFirst runs a plan of two instructions, and pauses it while the first runs.
func (m *machine) pauseAfterFirst() state {
	m.pending(instructions(waiting("a"), ran("b")))
	m.start()
	m.until("the first instruction", func(state) bool { return m.lines("a") == 1 })
	m.annotate(paused, "true")
	time.Sleep(3 * time.Second)
	m.write("go", "")
	return m.until("the pause", inState("paused"))
}

// resume ends the pause, and expects that each of the two instructions has run once.
func (m *machine) resume() {
	m.annotate(paused, "false")
	m.until("success", inState("succeeded"))
	if m.lines("a") != 1 || m.lines("b") != 1 {
		m.Errorf("they ran %d and %d times", m.lines("a"), m.lines("b"))
	}
}

// left is a rule about annotations with which nothing is done and nothing written.
func left(name string, annotations map[string]string) rule {
	return interrupt(name, func(m *machine) {
		m.set(map[string]string{"of-others": "x"})
		for key, value := range annotations {
			m.annotate(key, value)
		}
		m.pending(instructions(ran("a")))
		before := m.until("the Secret", inState("pending"))
		m.start()
		m.never(5*time.Second, "something was done or written", func(s state) bool {
			return m.exists("a") || s.object.ResourceVersion != before.object.ResourceVersion && s.text("plan-state") != "pending"
		})
	})
}

func init() {
	rules = append(rules,
		interrupt("paused-before-it-begins", func(m *machine) {
			m.annotated(instructions(ran("a")), paused, "true")
			m.start()
			m.never(5*time.Second, "the plan ran", func(state) bool { return m.exists("a") })
			m.annotate(paused, "false")
			m.until("success", inState("succeeded"))
			if m.lines("a") != 1 {
				m.Errorf("it ran %d times", m.lines("a"))
			}
		}),
		soon(interrupt("paused-between-instructions", func(m *machine) {
			s := m.pauseAfterFirst()
			var checkpoint struct {
				Checksum              string
				CompletedInstructions int
				TotalInstructions     int
				Paused                bool
			}
			if err := json.Unmarshal([]byte(s.text("plan-checkpoint")), &checkpoint); err != nil ||
				checkpoint.Checksum != checksum(s.text("plan")) ||
				checkpoint.CompletedInstructions != 1 || checkpoint.TotalInstructions != 2 || !checkpoint.Paused {
				m.Errorf("plan-checkpoint is %s", s.text("plan-checkpoint"))
			}
			m.never(3*time.Second, "the plan went on", func(state) bool { return m.exists("b") })
			m.resume()
		})),
		soon(interrupt("pause-survives-restart", func(m *machine) {
			m.pauseAfterFirst()
			m.kill()
			m.start()
			m.never(4*time.Second, "the plan went on", func(state) bool { return m.exists("b") })
			m.resume()
		})),
		interrupt("probes-go-on-while-paused", func(m *machine) {
			site := newSite(m)
			m.run(probes("p", get(site.URL)), pendingState)
			m.annotate(paused, "true")
			m.until("health", func(s state) bool { p, _ := s.probe("p"); return p.Healthy })
			site.code.Store(500)
			m.until("the end of it", func(s state) bool { p, found := s.probe("p"); return found && !p.Healthy })
		}),
		interrupt("canceled-before-it-begins", func(m *machine) {
			m.annotated(instructions(ran("a")), canceled, "true")
			m.start()
			m.until("the state", inState("canceled"))
			m.never(3*time.Second, "the plan ran", func(state) bool { return m.exists("a") })
		}),
		interrupt("canceled-while-it-runs", func(m *machine) {
			m.pending(instructions(sh("a", "trap 'echo >$M/asked; exit 1' TERM; sleep 60 & echo $! >$M/pid; wait"), ran("b")))
			m.start()
			m.until("the first instruction", func(state) bool { return m.lines("pid") == 1 })
			m.annotate(canceled, "true")
			m.within(min(m.patience, 50*time.Second), "the state", inState("canceled")) // before the instruction would end unasked
			if !m.exists("asked") || alive(m.read("pid")) || m.exists("b") {
				m.Errorf("asked: %t, still alive: %t, went on: %t", m.exists("asked"), alive(m.read("pid")), m.exists("b"))
			}
		}),
		interrupt("canceled-although-it-refuses", func(m *machine) {
			m.pending(instructions(sh("a", "trap '' TERM; echo $$ >$M/pid; while true; do sleep 1; done")))
			m.start()
			m.until("the first instruction", func(state) bool { return m.lines("pid") == 1 })
			m.annotate(canceled, "true")
			m.until("the state", inState("canceled"))
			if alive(m.read("pid")) {
				m.Errorf("it still runs")
			}
		}),
		interrupt("canceled-is-terminal", func(m *machine) {
			m.annotated(instructions(ran("a")), canceled, "true")
			m.start()
			m.until("the state", inState("canceled"))
			m.annotate(canceled, "false")
			m.never(4*time.Second, "the plan ran", func(state) bool { return m.exists("a") })
			m.run(instructions(ran("b")), pendingState)
		}),
		interrupt("cancel-ends-periodic-instructions", func(m *machine) {
			m.run(periodic(every(1, "p", "")), pendingState)
			m.until("a run", func(state) bool { return m.lines("p") >= 1 })
			m.annotate(canceled, "true")
			time.Sleep(3 * time.Second)
			m.rests(4*time.Second, "the number of runs", func() string { return strconv.Itoa(m.lines("p")) })
		}),
		interrupt("cancel-beats-pause", func(m *machine) {
			m.set(map[string]string{"of-others": "x"})
			m.annotate(paused, "true")
			m.annotated(instructions(ran("a")), canceled, "true")
			m.start()
			m.until("the state", inState("canceled"))
		}),
		interrupt("cancel-beats-invalid-pause", func(m *machine) {
			m.set(map[string]string{"of-others": "x"})
			m.annotate(paused, "maybe")
			m.annotated(instructions(ran("a")), canceled, "true")
			m.start()
			m.until("the state", inState("canceled"))
		}),
		left("invalid-pause", map[string]string{paused: "yes"}),
		left("invalid-cancel", map[string]string{canceled: "1"}),
		left("invalid-cancel-with-pause", map[string]string{canceled: "1", paused: "true"}),
	)
}
