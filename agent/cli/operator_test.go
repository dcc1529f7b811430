package cli

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

func (m *machine) ask(code int, want string, args ...string) string {
	m.t.Helper()
	got, stdout, stderr := run1(append(args, "--config", m.path("config.yaml"))...)
	if got != code || !strings.Contains(stdout+stderr, want) {
		m.t.Fatalf("%v: got %d\n%s%s\nwant %d with %q; log of the agent:\n%s", args, got, stdout, stderr, code, want, m.read("log"))
	}
	return stdout
}

func (m *machine) answers() bool {
	code, _, _ := run1("history", "--config", m.path("config.yaml"), "--limit", "1")
	_, stdout, _ := run1("status", "--config", m.path("config.yaml"), "-o", "json")
	return code == 0 && strings.Contains(stdout, `"running": true`)
}

// An operator handles a failed plan: status, logs, a fix, retry.
func TestFailedPlanIsFixed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	checksum := m.deliver(plans.Plan{
		Files: []plans.File{{Path: m.path("etc/config"), Content: base64.StdEncoding.EncodeToString([]byte("a: b\n"))}},
		Instructions: []plans.Instruction{
			shell("prepare", "echo prepared"),
			shell("install", "echo trying; echo the disk is on fire >&2; [ -e "+m.path("fixed")+" ] || exit 4"),
		},
	})
	m.start()
	m.until("the last failure", func() bool { return m.status().State == plans.StateFailed })
	m.until("rest", func() bool {
		_, out, _ := run1("status", "--config", m.path("config.yaml"))
		return strings.Contains(out, "state failed") && strings.Contains(out, "FAILED") && !strings.Contains(out, "not reported")
	})

	status := m.ask(3, "exit code 4", "status")
	for _, want := range []string{"plan Secret fleet-default/plan", plans.ShortChecksum(checksum) + ", state failed",
		"done      instructions[0] (prepare)",
		"FAILED    instructions[1] (install)", "output: system-agent logs --attempt "} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	if !strings.Contains(strings.Join(strings.Fields(status), " "), "Hub connected") {
		t.Errorf("status lacks the hub:\n%s", status)
	}
	t.Logf("status:\n%s", status)
	if strings.Contains(status, "on fire") {
		t.Errorf("status shows an output:\n%s", status)
	}
	if out := m.ask(0, "", "logs", "--instruction", "install", "--stderr"); out != "the disk is on fire\n" {
		t.Errorf("got %q", out)
	}
	m.ask(0, "FAILED", "history")
	m.ask(0, "command  sh", "plan", "show")
	m.ask(0, "1 of 1 files are unchanged\n> run instructions[0] prepare: sh", "plan", "diff")
	if _, raw, _ := run1("plan", "show", "--raw", "--config", m.path("config.yaml")); plans.Checksum([]byte(raw)) != checksum {
		t.Errorf("got %s", raw)
	}

	m.write("fixed", "")
	m.ask(0, "Retrying plan "+plans.ShortChecksum(checksum)+" from hub", "retry")
	m.until("success", func() bool { return m.status().State == plans.StateSucceeded })
	m.until("exit code 0 of status", func() bool { code, _, _ := run1("status", "--config", m.path("config.yaml")); return code == 0 })
	m.ask(1, "nothing to retry", "retry")
	m.ask(0, "no instruction runs: the plan is applied", "plan", "diff")
	var attempts []journal.Attempt
	if err := json.Unmarshal([]byte(m.ask(0, "", "history", "-o", "json")), &attempts); err != nil {
		t.Fatal(err)
	}
	last := attempts[len(attempts)-1]
	if len(attempts) < 2 || attempts[0].Succeeded || !last.Succeeded || last.Number <= attempts[len(attempts)-2].Number ||
		len(last.Instructions) != 2 {
		t.Errorf("got %+v", attempts)
	}

	// Without the agent, the commands read the state directory.
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	m.ask(3, "NOT RUNNING", "status")
	m.ask(0, "==> instructions[1] (install), stdout <==\ntrying\n", "logs")
	m.ask(0, "succeeded", "history")
	m.ask(0, "command  sh", "plan", "show")
	if _, err := os.Lstat(m.path("agent.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket was not removed: %v", err)
	}
}

// An operator follows a long instruction while the agent is killed.
func TestFollowAndKill(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.deliver(plans.Plan{Instructions: []plans.Instruction{
		shell("long", "echo begun; while [ ! -e "+m.path("go")+" ]; do sleep 0.05; done; echo ended"), shell("last", "echo last"),
	}})
	m.start()
	m.until("the instruction", func() bool {
		_, out, _ := run1("status", "--config", m.path("config.yaml"))
		return strings.Contains(out, "running   instructions[0] (long)")
	})
	m.ask(0, "APPLYING", "status")
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := Main([]string{"logs", "-f", "--stdout", "--config", m.path("config.yaml")}, w, io.Discard)
		w.Close()
		ended <- code
	}()
	begun := make([]byte, len("==> instructions[0] (long), stdout <==\nbegun\n"))
	if _, err := io.ReadFull(r, begun); err != nil || !strings.HasSuffix(string(begun), "begun\n") {
		t.Fatalf("got %q, %v", begun, err)
	}
	// A restart of the agent does not end following. Without systemd the instruction is restarted, too.
	_ = m.end(syscall.SIGKILL)
	m.start()
	m.until("an answer of the next agent", m.answers)
	m.write("go", "")
	rest, err := io.ReadAll(r)
	if err != nil || strings.TrimPrefix(string(rest), "begun\n") != "ended\n==> instructions[1] (last), stdout <==\nlast\n" || <-ended != 0 {
		t.Errorf("got %q, %v", rest, err)
	}

	m.until("success", func() bool { return m.status().State == plans.StateSucceeded })
	if err := os.Remove(m.path("go")); err != nil {
		t.Fatal(err)
	}
	m.deliver(plans.Plan{Instructions: []plans.Instruction{shell("again",
		"echo again; while [ ! -e "+m.path("go")+" ]; do sleep 0.05; done")}})
	m.until("the next plan", func() bool {
		_, out, _ := run1("status", "--config", m.path("config.yaml"))
		_, logs, _ := run1("logs", "--config", m.path("config.yaml"))
		return strings.Contains(out, "running   instructions[0] (again)") && strings.Contains(logs, "again")
	})
	_ = m.end(syscall.SIGKILL)
	if _, err := os.Lstat(m.path("agent.sock")); err != nil {
		t.Errorf("the killed agent left no socket: %v", err)
	}
	out := m.ask(3, "NOT RUNNING: no agent is listening", "status")
	if !strings.Contains(out, "unfinished, started") || !strings.Contains(out, "started   instructions[0] (again)") {
		t.Errorf("got %s", out)
	}
	m.ask(0, "again\n", "logs")
	m.write("go", "")
	m.start()
	m.until("an answer of the restarted agent", m.answers)
	m.until("success", func() bool { return m.status().State == plans.StateSucceeded })
}
