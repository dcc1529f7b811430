//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	active         = "var/interlock/applyinator-active"
	restartPending = "var/interlock/restart-pending"
)

// names are the entries of a folder.
func (m *machine) names(dir string) []string {
	entries, _ := os.ReadDir(m.path(dir))
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}

// changedAt is when something in a folder was last made or removed.
func (m *machine) changedAt(dir string) time.Time {
	info, err := os.Stat(m.path(dir))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func init() {
	rules = append(rules,
		rule{name: "5/interlock/active-while-a-plan-runs", test: func(m *machine) {
			sum := whileItRuns(m, "0", nil, func() {
				if _, err := time.Parse(time.UnixDate, m.read(active)); err != nil {
					m.Errorf("applyinator-active holds %q", m.read(active))
				}
				m.attrs(active, 0o600, 0, 0)
			})
			m.until("success", func(s state) bool { return s.applied(sum) })
			m.until("the end of applyinator-active", func(state) bool { return !m.exists(active) })
		}},
		rule{name: "5/interlock/active-ends-after-a-failure", test: func(m *machine) {
			m.fail(instructions(sh("a", "exit 1")))
			m.until("the end of applyinator-active", func(state) bool { return !m.exists(active) })
		}},
		rule{name: "5/interlock/restart-pending", test: func(m *machine) {
			m.write(restartPending, unixDate(time.Now()))
			m.deliver(instructions(ran("a")))
			m.start()
			m.never(8*time.Second, "a plan runs although a restart is announced", func(state) bool { return m.exists("a") })
			if !m.exists(restartPending) {
				m.Errorf("the announcement is gone")
			}
		}},
		rule{name: "5/interlock/restart-pending-touched", test: func(m *machine) {
			m.write(restartPending, "") // as the install script does
			m.deliver(instructions(ran("a")))
			m.start()
			m.until("the time in it", func(state) bool {
				at, err := time.Parse(time.UnixDate, m.read(restartPending))
				return err == nil && time.Since(at) < time.Minute
			})
			m.attrs(restartPending, 0o600, 0, 0)
			m.never(4*time.Second, "a plan runs although a restart is announced", func(state) bool { return m.exists("a") })
		}},
		rule{name: "5/interlock/restart-pending-taken-back", test: func(m *machine) {
			m.write(restartPending, unixDate(time.Now()))
			sum := m.deliver(instructions(ran("a")))
			m.start()
			time.Sleep(2 * time.Second)
			_ = os.Remove(m.path(restartPending))
			m.until("success", func(s state) bool { return s.applied(sum) })
		}},
		rule{name: "5/interlock/restart-pending-expires-after-5-min", test: func(m *machine) {
			begun := time.Now()
			m.write(restartPending, unixDate(begun.Add(15*time.Second-5*time.Minute)))
			sum := m.deliver(instructions(ran("a")))
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
			if took := time.Since(begun); took < 13*time.Second {
				m.Errorf("it took %s only", took)
			}
			if m.exists(restartPending) {
				m.Errorf("the announcement is still there")
			}
		}},
		rule{name: "5/interlock/restart-pending-is-looked-at-often", better: "5", timed: true, test: func(m *machine) {
			begun := time.Now()
			m.write(restartPending, unixDate(begun.Add(10*time.Second-5*time.Minute)))
			sum := m.deliver(instructions(ran("a")))
			m.start()
			m.within(30*time.Second, "success", func(s state) bool { return s.applied(sum) })
		}},
		rule{name: "5/interlock/restart-pending-long-expired", test: func(m *machine) {
			m.write(restartPending, unixDate(time.Now().Add(-time.Hour)))
			m.run(instructions(ran("a")))
			if m.exists(restartPending) {
				m.Errorf("the announcement is still there")
			}
		}},
		rule{name: "5/interlock/active-of-a-crash-goes", better: "5.2a", test: func(m *machine) {
			m.write(active, unixDate(time.Now()))
			m.start()
			m.until("the end of applyinator-active", func(state) bool { return !m.exists(active) })
		}},
		rule{name: "5/interlock/not-configured", test: func(m *machine) {
			delete(m.config, "interlockDirectory")
			m.run(instructions(ran("a")))
		}},
		rule{name: "5/history/one-file-for-a-plan", test: func(m *machine) {
			plan := instructions(ran("a"))
			m.run(plan)
			files := m.names("var/applied")
			if len(files) != 1 || !regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-applied\.plan$`).MatchString(files[0]) {
				m.Fatalf("the history is %v", files)
			}
			m.attrs("var/applied", 0o700, 0, 0)
			m.attrs("var/applied/"+files[0], 0o600, 0, 0)
			var entry struct {
				Plan     obj
				Checksum string
			}
			if err := json.Unmarshal([]byte(m.read("var/applied/"+files[0])), &entry); err != nil || entry.Checksum != checksum(encode(plan)) ||
				entry.Plan["instructions"] == nil {
				m.Errorf("the file holds %+v, %v", entry, err)
			}
		}},
		rule{name: "5/history/also-of-failures", test: func(m *machine) {
			m.fail(instructions(ran("a", "exit 1")))
			if files := m.names("var/applied"); len(files) != 1 {
				m.Errorf("the history is %v", files)
			}
		}},
		rule{name: "5/history/same-plan-is-not-repeated", test: func(m *machine) {
			m.run(instructions(ran("a")))
			time.Sleep(4 * time.Second)
			m.restart()
			time.Sleep(3 * time.Second)
			if files := m.names("var/applied"); len(files) != 1 {
				m.Errorf("the history is %v", files)
			}
		}},
		rule{name: "5/history/64-are-kept", test: func(m *machine) {
			for i := range 70 {
				m.write(fmt.Sprintf("var/applied/20200101-0000%02d-applied.plan", i), "{}")
			}
			_ = os.Chmod(m.path("var/applied"), 0o700)
			m.run(instructions(ran("a")))
			files := m.names("var/applied")
			if len(files) != 64 || files[63][:4] == "2020" || files[0] != "20200101-000007-applied.plan" {
				m.Errorf("%d are kept, %s to %s", len(files), files[0], files[len(files)-1])
			}
		}},
		rule{name: "5/history/not-configured", test: func(m *machine) {
			delete(m.config, "appliedPlanDirectory")
			m.run(instructions(ran("a")))
			if m.exists("var/applied") {
				m.Errorf("there is a history")
			}
		}},
		rule{name: "5/work/folder-of-an-instruction", test: func(m *machine) {
			m.config["preserveWorkDirectory"] = true
			sum := m.deliver(instructions(sh("a", "pwd >>$M/where; echo x >left"), sh("b", "pwd >>$M/where")))
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
			where := strings.Fields(m.read("where"))
			if len(where) != 2 {
				m.Fatalf("they ran in %v", where)
			}
			for i, dir := range where {
				rel, _ := filepath.Rel(m.path("var/work"), dir)
				if !regexp.MustCompile(fmt.Sprintf(`^[0-9]{8}-[0-9]{6}/%s_%d$`, sum, i)).MatchString(rel) {
					m.Errorf("instruction %d ran in %s", i, rel)
				}
				m.attrs(dir, 0o755, 0, 0)
			}
			m.holds(filepath.Join(where[0], "left"), "x\n")
		}},
		rule{name: "5/work/folder-goes", test: func(m *machine) {
			m.run(instructions(sh("a", "pwd >$M/where; echo x >left")))
			m.until("the end of the folder", func(state) bool { return !m.exists(strings.TrimSpace(m.read("where"))) })
		}},
		rule{name: "5/work/of-others-stays", better: "S9", test: func(m *machine) {
			m.write("var/work/of-others/f", "x")
			m.run(instructions(ran("a")))
			m.holds("var/work/of-others/f", "x")
		}},
		rule{name: "5/work/root-as-work-folder-is-refused", better: "S9", test: func(m *machine) {
			if accepts(m, "validate-config", "config.yaml", "remoteEnabled: true\nconnectionInfoFile: /c/info.json\nworkDirectory: /\n", 0o600) {
				m.Errorf("it is accepted")
			}
		}},
		rule{name: "5/rest/writes-nothing", better: "B19", test: func(m *machine) {
			m.run(instructions(ran("a")))
			time.Sleep(3 * time.Second)
			m.rests(6*time.Second, "the time of the last change in a folder", func() string {
				return fmt.Sprint(m.changedAt("var/interlock"), m.changedAt("var/work"))
			})
		}},
	)
}
