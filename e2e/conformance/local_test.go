//go:build conformance

package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"
)

// position is a position file.
type position struct {
	AppliedChecksum string                 `json:"appliedChecksum"`
	Output          []byte                 `json:"output"`
	ProbeStatus     map[string]probeStatus `json:"probeStatus"`
	PeriodicOutput  []byte                 `json:"periodicOutput"`
}

func (m *machine) position(name string) position {
	var p position
	_ = json.Unmarshal([]byte(m.read(name)), &p)
	return p
}

func unzipped(raw []byte) string {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(r)
	return string(text)
}

// local is a rule about plans from files, for an agent that has nothing but those.
func local(name, better string, test func(m *machine)) rule {
	return rule{name: "4/local/" + name, better: better, test: func(m *machine) {
		m.config["localEnabled"], m.config["remoteEnabled"] = true, false
		delete(m.config, "connectionInfoFile")
		test(m)
	}}
}

// place writes a plan file and gives its checksum.
func (m *machine) place(name string, plan obj) string {
	m.write("var/plans/"+name, encode(plan))
	return checksum(encode(plan))
}

func (m *machine) positioned(name, sum string) {
	m.until("the position "+name, func(state) bool { return m.position("var/plans/"+name).AppliedChecksum == sum })
}

// applies places a plan that creates a file of its name, starts the agent and waits until the plan is applied.
func (m *machine) applies(name string) {
	sum := m.place(name+".plan", instructions(ran(name)))
	m.start()
	m.positioned(name+".pos", sum)
}

// others lets another plan be applied, and fails when the first ran meanwhile.
func (m *machine) others(what string) {
	sum := m.place("z.plan", instructions(ran("z")))
	m.start()
	m.positioned("z.pos", sum)
	m.never(6*time.Second, what, func(state) bool { return m.exists("a") })
}

// ignored is a rule about files that are not applied, while the plan b is.
func ignored(name, what string, place func(m *machine)) rule {
	return local(name, "", func(m *machine) {
		place(m)
		m.applies("b")
		m.never(2*time.Second, what, func(state) bool { return m.exists("a") })
	})
}

func init() {
	rules = append(rules,
		local("applies", "", func(m *machine) {
			sum := m.place("a.plan", both(m.files(m.file("f", "x")), instructions(ran("a", "echo said"))))
			m.start()
			m.positioned("a.pos", sum)
			m.attrs("var/plans/a.pos", 0o600, 0, 0)
			m.holds("f", "x")
			if got := unzipped(m.position("var/plans/a.pos").Output); got != `{"a":"c2FpZAo="}` {
				m.Errorf("the output is %q", got)
			}
		}),
		local("file-that-comes-later", "", func(m *machine) {
			m.start()
			time.Sleep(2 * time.Second)
			m.positioned("a.pos", m.place("a.plan", instructions(ran("a"))))
		}),
		local("folders-below", "", func(m *machine) {
			sum := m.place("deep/er/a.plan", instructions(ran("a")))
			m.start()
			m.positioned("deep/er/a.pos", sum)
		}),
		local("changed-plan", "", func(m *machine) {
			m.applies("a")
			m.positioned("a.pos", m.place("a.plan", instructions(ran("b"))))
			if m.lines("a") != 1 || m.lines("b") != 1 {
				m.Errorf("they ran %d and %d times", m.lines("a"), m.lines("b"))
			}
		}),
		local("once", "", func(m *machine) {
			m.applies("a")
			m.never(7*time.Second, "it ran again", func(state) bool { return m.lines("a") != 1 })
		}),
		local("restart-does-not-apply-again", "", func(m *machine) {
			m.applies("a")
			m.restart()
			m.never(7*time.Second, "it ran again", func(state) bool { return m.lines("a") != 1 })
		}),
		local("position-of-before", "", func(m *machine) {
			sum := m.place("a.plan", instructions(ran("a")))
			m.write("var/plans/a.pos", `{"appliedChecksum":"`+sum+`"}`)
			m.others("it ran although it is applied")
		}),
		ignored("dot-file", "a plan ran whose name begins with a dot", func(m *machine) {
			m.place(".a.plan", instructions(ran("a")))
		}),
		ignored("other-names", "a file ran that is no plan", func(m *machine) {
			m.place("a.json", instructions(ran("a")))
			m.place("a.plan.bak", instructions(ran("a")))
		}),
		ignored("skip-file", "a plan ran that is to be skipped", func(m *machine) {
			m.place("a.plan", instructions(ran("a")))
			m.write("var/plans/a.plan.skip", "")
		}),
		ignored("skip-file-elsewhere", "a plan ran that is to be skipped", func(m *machine) {
			m.place("a.plan", instructions(ran("a")))
			m.write("var/plans/deep/a.plan.skip", "")
		}),
		local("skip-file-taken-away", "", func(m *machine) {
			sum := m.place("a.plan", instructions(ran("a")))
			m.write("var/plans/a.plan.skip", "")
			m.start()
			time.Sleep(2 * time.Second)
			_ = os.Remove(m.path("var/plans/a.plan.skip"))
			m.positioned("a.pos", sum)
		}),
		local("several", "", func(m *machine) {
			a, b := m.place("a.plan", instructions(sh("a", "sleep 1; echo a >>$M/ran"))), m.place("b.plan", instructions(sh("b", "echo b >>$M/ran")))
			m.start()
			m.positioned("a.pos", a)
			m.positioned("b.pos", b)
			m.holds("ran", "a\nb\n")
		}),
		local("probes", "", func(m *machine) {
			s := newSite(m)
			m.place("a.plan", probes("p", get(s.URL)))
			m.start()
			m.until("health", func(state) bool { return m.position("var/plans/a.pos").ProbeStatus["p"].Healthy })
		}),
		local("periodic", "", func(m *machine) {
			m.place("a.plan", periodic(every(1, "p", "echo said")))
			m.start()
			m.until("runs and report", func(state) bool {
				return m.lines("p") >= 3 && strings.Contains(unzipped(m.position("var/plans/a.pos").PeriodicOutput), `"stdout":"c2FpZAo="`)
			})
		}),
		local("file-error-is-tried-again", "", func(m *machine) {
			m.write("blocked", "x")
			sum := m.place("a.plan", m.files(m.file("blocked/f", "x")))
			m.start()
			time.Sleep(3 * time.Second)
			_ = os.Remove(m.path("blocked"))
			m.positioned("a.pos", sum)
			m.holds("blocked/f", "x")
		}),
		local("broken-plan-holds-up-no-other", "", func(m *machine) {
			m.write("var/plans/a.plan", "{")
			m.applies("b")
		}),
		local("beside-the-hub", "", func(m *machine) {
			m.config["remoteEnabled"], m.config["connectionInfoFile"] = true, m.path("rancher2_connection_info.json")
			sum := m.place("a.plan", instructions(ran("a")))
			m.run(instructions(ran("b")))
			m.positioned("a.pos", sum)
		}),
		local("one-plan-at-a-time", "", func(m *machine) {
			m.config["remoteEnabled"], m.config["connectionInfoFile"] = true, m.path("rancher2_connection_info.json")
			const alone = "mkdir $M/lock || echo >>$M/together; sleep 2; rmdir $M/lock"
			a, b := m.place("a.plan", instructions(sh("a", alone))), m.place("b.plan", instructions(sh("b", alone)))
			m.run(instructions(sh("c", alone)))
			m.positioned("a.pos", a)
			m.positioned("b.pos", b)
			if m.exists("together") {
				m.Errorf("two plans ran at a time")
			}
		}),
		local("failure-does-not-count-as-applied", "B16", func(m *machine) {
			sum := m.place("a.plan", instructions(ran("a", "exit 1")))
			m.start()
			m.until("a run", func(state) bool { return m.lines("a") >= 1 })
			m.never(7*time.Second, "the failure counts as applied", func(state) bool { return m.position("var/plans/a.pos").AppliedChecksum == sum })
		}),
		local("failure-is-tried-again", "B16", func(m *machine) {
			sum := m.place("a.plan", instructions(ran("a", "[ $(wc -l <$M/a) = 2 ]")))
			m.start()
			m.positioned("a.pos", sum)
			if m.lines("a") != 2 {
				m.Errorf("it ran %d times", m.lines("a"))
			}
		}),
		local("two-plans-do-not-fill-the-history", "B16", func(m *machine) {
			a, b := m.place("a.plan", instructions(ran("a"))), m.place("b.plan", instructions(ran("b")))
			m.start()
			m.positioned("a.pos", a)
			m.positioned("b.pos", b)
			time.Sleep(12 * time.Second)
			if files := m.names("var/applied"); len(files) > 2 {
				m.Errorf("the history is %v", files)
			}
		}),
		local("plan-that-others-may-write", "S8", func(m *machine) {
			m.place("a.plan", instructions(ran("a")))
			_ = os.Chmod(m.path("var/plans/a.plan"), 0o666)
			m.others("a plan ran that anybody may have written")
		}),
		local("plan-of-another-user", "S8", func(m *machine) {
			m.place("a.plan", instructions(ran("a")))
			_ = os.Chown(m.path("var/plans/a.plan"), 7, 7)
			m.others("a plan ran that another user has written")
		}),
	)
}
