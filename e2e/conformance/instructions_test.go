//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// prints is a rule about what a shell script of an instruction prints.
func prints(name, better, script string, want string, with ...obj) rule {
	return rule{name: "2/instruction/" + name, better: better, test: func(m *machine) {
		s := m.run(instructions(sh("i", script, with...)))
		got := strings.ReplaceAll(s.outputs("applied-output")["i"], m.dir, "$M")
		if !regexp.MustCompile("^(?s:" + want + ")$").MatchString(got) {
			m.Errorf("it printed %q and should have printed %q", got, want)
		}
	}}
}

func init() {
	const executionDir = `\$M/var/work/[^\n]+_0`
	rules = append(rules,
		prints("arguments", "", `echo "$1|$2"`, "a b\\|\\$x\n", obj{"args": []string{"-c", `echo "$1|$2"`, "sh", "a b", "$x"}}),
		prints("env", "", `echo $A $B`, "1 2\n", obj{"env": []string{"A=1", "B=2"}}),
		prints("env-over-the-agents", "", `echo $TZ`, "Asia/Tokyo\n", obj{"env": []string{"TZ=Asia/Tokyo"}}),
		prints("env-of-the-agent", "", `echo $CATTLE_LOGLEVEL`, "debug\n"),
		prints("env-with-equals-sign", "", `echo $A`, "b=c\n", obj{"env": []string{"A=b=c"}}),
		prints("working-folder", "", `pwd`, executionDir+"\n"),
		prints("working-folder-is-empty", "", `ls -A | wc -l`, "0\n"),
		prints("working-folder-in-env", "", `[ "$(pwd)" = "$CATTLE_AGENT_EXECUTION_PWD" ] && echo same`, "same\n"),
		prints("path-ends-with-working-folder", "", `echo "$PATH"`, `/usr/local/sbin:\S*/bin:`+executionDir+"\n"),
		prints("path-of-its-own", "B10", `echo "$PATH"`, `/usr/bin:/bin:/own:`+executionDir+"\n",
			obj{"env": []string{"PATH=/usr/bin:/bin:/own"}}),
		prints("attempt-number", "", `echo $CATTLE_AGENT_ATTEMPT_NUMBER`, "1\n"),
		prints("standard-input-is-empty", "", `wc -c; readlink /proc/self/fd/0`, "0\n/dev/null\n"),
		prints("runs-as-root", "", `id -u; id -g`, "0\n0\n"),
		prints("standard-error-not-in-saved-output", "", `echo out; echo err >&2`, "out\n"),
		prints("long-line", "B7", `head -c 100000 /dev/zero | tr '\0' x; echo; echo end`, "x.*\nend\n"),
		prints("much-output", "B7", `yes | head -c 3000000; echo end`, "y\n.*end\n"),
		prints("background-child-holds-nothing-up", "B8", `sleep 100 & echo $! >$M/pid; echo done`, "done\n"),
		prints("script", "script", "", "sh-\\$M/var/work/.*\n", obj{"command": "false", "args": []string{}, "script": "echo sh-$PWD"}),
		prints("script-with-its-interpreter", "script", "", "3\n",
			obj{"command": "false", "args": []string{}, "script": "#!/usr/bin/awk -f\nBEGIN { print 1 + 2 }\n"}),
		rule{name: "2/instruction/command-from-path", test: func(m *machine) {
			m.writeMode("bin/own", "#!/bin/sh\necho own $1", 0o755)
			m.env = []string{"PATH=/usr/bin:/bin:" + m.path("bin")}
			s := m.run(instructions(obj{"name": "i", "command": "own", "args": []string{"x"}, "saveOutput": true}))
			if got := s.outputs("applied-output")["i"]; got != "own x\n" {
				m.Errorf("it printed %q", got)
			}
		}},
		rule{name: "2/instruction/command-with-path", test: func(m *machine) {
			m.writeMode("bin/own", "#!/bin/sh\necho >$M/ran", 0o755)
			m.run(instructions(obj{"command": m.path("bin/own")}))
			if !m.exists("ran") {
				m.Errorf("it did not run")
			}
		}},
		rule{name: "2/instruction/command-not-found", test: func(m *machine) {
			m.fail(instructions(obj{"name": "i", "command": "there-is-no-such-command"}))
		}},
		rule{name: "2/instruction/no-command-is-run.sh", test: func(m *machine) {
			m.fail(instructions(obj{"name": "i"})) // without an image there is none
		}},
		rule{name: "2/instruction/in-their-order", test: func(m *machine) {
			m.run(instructions(sh("a", "sleep 0.2; echo a >>$M/ran"), sh("b", "echo b >>$M/ran"), sh("c", "echo c >>$M/ran")))
			m.holds("ran", "a\nb\nc\n")
		}},
		rule{name: "2/instruction/first-failure-ends", test: func(m *machine) {
			m.fail(instructions(sh("a", "echo a >>$M/ran"), sh("b", "exit 3"), sh("c", "echo c >>$M/ran")))
			m.holds("ran", "a\n")
		}},
		rule{name: "2/instruction/death-by-signal-is-a-failure", test: func(m *machine) {
			m.fail(instructions(sh("a", "kill -9 $$")))
		}},
		rule{name: "2/instruction/output-not-asked-for", test: func(m *machine) {
			s := m.run(instructions(sh("a", "echo a", obj{"saveOutput": false}), sh("b", "echo b")))
			got := s.outputs("applied-output")
			if _, found := got["a"]; found || got["b"] != "b\n" {
				m.Errorf("applied-output is %v", got)
			}
		}},
		rule{name: "2/instruction/output-of-failure", test: func(m *machine) {
			s := m.fail(instructions(sh("a", "echo a"), sh("b", "echo b; exit 3")))
			if got := s.outputs("failed-output"); got["a"] != "a\n" || got["b"] != "b\n" {
				m.Errorf("failed-output is %v", got)
			}
		}},
		rule{name: "2/instruction/output-empty", test: func(m *machine) {
			s := m.run(instructions(sh("a", ":")))
			if got, found := s.outputs("applied-output")["a"]; !found || got != "" {
				m.Errorf("applied-output is %s", s.unzip("applied-output"))
			}
		}},
		rule{name: "2/instruction/standard-error-of-failure", better: "B9", test: func(m *machine) {
			s := m.fail(instructions(sh("a", "echo reason >&2; exit 3")))
			if !strings.Contains(fmt.Sprint(s.outputs("failed-output")), "reason") {
				m.Errorf("failed-output is %v", s.outputs("failed-output"))
			}
		}},
		rule{name: "2/instruction/time-limit", better: "timeouts", test: func(m *machine) {
			m.fail(instructions(sh("a", "trap '' TERM; sleep 100 & echo $! >$M/pid; wait; sleep 100", obj{"timeoutSeconds": 1})),
				map[string]string{"max-failures": "1"})
			if alive(m.read("pid")) {
				m.Errorf("what it started still runs")
			}
		}},
		rule{name: "2/instruction/large-output-fits-the-secret", better: "B15", test: func(m *machine) {
			var list []obj
			for i := range 10 {
				list = append(list, sh(fmt.Sprintf("i%d", i), "head -c 400000 /dev/urandom"))
			}
			m.run(instructions(list...))
		}},
		rule{name: "2/instruction/old-names-leave-the-output", better: "B15", test: func(m *machine) {
			m.run(instructions(sh("a", "echo a")))
			s := m.run(instructions(sh("b", "echo b")))
			if _, found := s.outputs("applied-output")["a"]; found {
				m.Errorf("applied-output is %v", s.outputs("applied-output"))
			}
		}},
		rule{name: "2/instruction/does-not-hold-up-the-end-of-the-agent", better: "5", test: func(m *machine) {
			m.deliver(instructions(sh("a", "sleep 60 & echo $! >$M/pid; wait")))
			m.start()
			m.until("the instruction", func(state) bool { return m.lines("pid") > 0 })
			if took, _ := m.signal(syscall.SIGTERM); took > 45*time.Second { // of the 60 s that the instruction takes
				m.Errorf("the agent took %s to end", took)
			}
		}},
		rule{name: "2/json/unknown-keys", test: raw(`{"files":[{"path":"$M/f","content":"eA==","colour":"red"}],"future":{"a":[1]}}`)},
		rule{name: "2/json/keys-in-other-case", test: raw(`{"FILES":[{"Path":"$M/f","cONTENT":"eA=="}]}`)},
		rule{name: "2/json/null-lists",
			test: raw(`{"files":[{"path":"$M/f","content":"eA=="}],"instructions":null,"probes":null,"periodicInstructions":null}`)},
		rule{name: "2/json/empty-plan", test: func(m *machine) {
			sum := m.deliverRaw(`{}`)
			m.start()
			m.until("success", func(s state) bool { return s.applied(sum) })
		}},
		rule{name: "2/json/not-json", test: func(m *machine) {
			sum := m.deliverRaw(`{"files":[`)
			m.start()
			m.never(4*time.Second, "it counts as applied", func(s state) bool { return s.applied(sum) })
		}},
		rule{name: "2/json/not-json-is-reported", better: "B4", test: func(m *machine) {
			sum := m.deliverRaw(`{"files":[`)
			m.start()
			m.until("failure", func(s state) bool { return s.failed(sum) && len(s.outputs("failed-output")) > 0 })
		}},
		rule{name: "2/json/not-json-then-a-good-plan", test: func(m *machine) {
			m.deliverRaw(`{"files":[`)
			m.start()
			time.Sleep(2 * time.Second)
			m.run(m.files(m.file("f", "x")))
		}},
		rule{name: "2/checksum/of-the-raw-bytes", test: func(m *machine) {
			plan := encode(instructions(sh("a", "echo >>$M/ran")))
			for i, text := range []string{plan, plan + "\n", " " + plan} {
				sum := m.deliverRaw(text)
				if i == 0 {
					m.start()
				}
				m.until("success", func(s state) bool { return s.applied(sum) })
			}
			if m.lines("ran") != 3 {
				m.Errorf("it ran %d times", m.lines("ran"))
			}
		}},
	)
}

// raw is a test of a plan that writes the file f.
func raw(plan string) func(*machine) {
	return func(m *machine) {
		sum := m.deliverRaw(strings.ReplaceAll(plan, "$M", m.dir))
		m.start()
		m.until("success", func(s state) bool { return s.applied(sum) })
		m.holds("f", "x")
	}
}

// alive reports whether a process runs, and gives it a moment to end.
func alive(pid string) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if strings.TrimSpace(pid) == "" {
			return false
		}
		raw, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(pid), "stat"))
		if err != nil || strings.Contains(string(raw), ") Z ") {
			return false
		}
	}
	return true
}
