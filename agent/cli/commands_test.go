package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// fakeAgent is an engine with values of the test.
type fakeAgent struct {
	state    func() engine.State
	attempts []journal.Attempt
	plan     []byte
	retry    error
}

func (a *fakeAgent) State() engine.State                 { return a.state() }
func (a *fakeAgent) History() ([]journal.Attempt, error) { return a.attempts, nil }
func (a *fakeAgent) Plan() []byte                        { return a.plan }
func (a *fakeAgent) Retry() error                        { return a.retry }

// fakeMachine is a directory with the configuration of a fakeAgent.
type fakeMachine struct {
	t      *testing.T
	dir    string
	socket string
	agent  *fakeAgent
}

func newFakeMachine(t *testing.T) *fakeMachine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	m := &fakeMachine{t: t, dir: dir, socket: filepath.Join(dir, "agent.sock"),
		agent: &fakeAgent{state: func() engine.State { return engine.State{Source: "hub"} }}}
	m.write("config.yaml", fmt.Sprintf("localEnabled: true\nlocalPlanDirectory: %[1]s/plans\nworkDirectory: %[1]s/var/work\nsocket: %s\n",
		dir, m.socket))
	return m
}

func (m *fakeMachine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// serve runs the agent's socket until the test ends.
func (m *fakeMachine) serve() {
	m.t.Helper()
	listener, err := fs.Listen(m.socket)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	server := &control.Server{Log: slog.New(slog.DiscardHandler),
		Engines: func() map[string]control.Engine { return map[string]control.Engine{"hub": m.agent} },
		Status:  control.Status{Version: "v1", PID: os.Getpid(), Started: time.Now(), StateDirectory: m.dir + "/var/state"}}
	go func() { done <- server.Serve(ctx, listener) }()
	m.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (m *fakeMachine) run(args ...string) (int, string, string) {
	m.t.Helper()
	return run1(append(args, "--config", filepath.Join(m.dir, "config.yaml"))...)
}

func (m *fakeMachine) want(code int, out string, args ...string) string {
	m.t.Helper()
	got, stdout, stderr := m.run(args...)
	if got != code || !strings.Contains(stdout+stderr, out) {
		m.t.Errorf("%v: got %d\n%s%s\nwant %d with %q", args, got, stdout, stderr, code, out)
	}
	return stdout
}

func TestCommandsWithoutAnAgent(t *testing.T) {
	m := newFakeMachine(t)
	m.want(3, "NOT RUNNING: no agent is listening on "+m.socket, "status")
	m.want(0, "No attempts yet.", "history")
	m.want(1, "no plan has been applied on this machine: ", "plan", "show")
	m.want(1, "no plan has been applied on this machine: ", "logs")
	m.want(1, "retry needs a running agent: no agent is listening on", "retry")
	m.write("off/config.yaml", "localEnabled: true\nlocalPlanDirectory: /a/b\nworkDirectory: /a/work\nsocket: none\n")
	if code, stdout, _ := run1("status", "--config", m.dir+"/off/config.yaml"); code != 3 || !strings.Contains(stdout,
		"socket is disabled in the configuration") {
		t.Errorf("got %d %s", code, stdout)
	}
}

func TestStatusExitCode(t *testing.T) {
	m := newFakeMachine(t)
	m.serve()
	state := engine.State{Source: "hub", Checksum: "abc", Phase: engine.PhaseIdle,
		Probes: map[string]plans.ProbeStatus{"etcd": {Healthy: true}}}
	m.agent.state = func() engine.State { return state }
	m.want(0, "1 of 1 healthy", "status")
	state.Probes = map[string]plans.ProbeStatus{"etcd": {FailureCount: 1}}
	var output statusOutput
	if err := json.Unmarshal([]byte(m.want(3, "", "status", "-o", "json")), &output); err != nil {
		t.Fatal(err)
	}
	if !output.Running || output.PID != os.Getpid() || !cmp.Equal(output.Attention, []string{"hub: probe etcd is unhealthy"}) ||
		output.Sources[0].Checksum != "abc" {
		t.Errorf("got %+v", output)
	}
	m.want(3, "checksum: abc", "status", "-o", "yaml")
}

func TestRetry(t *testing.T) {
	m := newFakeMachine(t)
	m.serve()
	m.want(0, "from hub; follow it with: system-agent logs -f\n", "retry")
	m.agent.retry = errors.New("the plan is applied")
	m.want(1, "system-agent: the plan is applied\n", "retry")
	m.want(1, `no plan source "moon": this agent has hub`, "retry", "--source", "moon")
}

// S4 and S2: secrets are hidden by default.
func TestPlanShow(t *testing.T) {
	const content, value, script = "file-hunter2", "env-hunter2", "script-hunter2"
	m := newFakeMachine(t)
	m.serve()
	raw, err := plans.Plan{
		Files: []plans.File{{Path: "/etc/a", Content: base64.StdEncoding.EncodeToString([]byte(content))}, {Path: "/etc/b",
			Action: plans.ActionDelete}},
		Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Name: "install", Image: "rancher/x:v1", Command: "sh",
			Args: []string{"-c", "run.sh"},
			Env:  []string{"TOKEN=" + value}}}, {CommonInstruction: plans.CommonInstruction{Script: "echo " + script + "\nexit"}}},
		PeriodicInstructions: []plans.PeriodicInstruction{{CommonInstruction: plans.CommonInstruction{Name: "p", Command: "true"}}},
		Probes: map[string]plans.Probe{"kubelet": {HTTPGet: plans.HTTPGetAction{URL: "http://u:" + value +
			"@127.0.0.1:10248/healthz"}}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.agent.plan = raw
	for _, args := range [][]string{{"plan", "show"}, {"plan", "show", "-o", "json"}, {"plan", "show", "-o", "yaml"}} {
		out := m.want(0, "run.sh", args...)
		for _, secret := range []string{content, value, script, base64.StdEncoding.EncodeToString([]byte(content))} {
			if strings.Contains(out, secret) {
				t.Errorf("%v shows %s:\n%s", args, secret, out)
			}
		}
	}
	m.want(0, "| "+content, "plan", "show", "--content")
	m.want(0, "script   echo "+script, "plan", "show", "--content")
	m.want(0, "TOKEN="+value, "plan", "show", "--env")
	m.want(0, "delete file      /etc/b", "plan", "show")
	if out := m.want(0, "", "plan", "show", "--raw"); out != string(raw) {
		t.Errorf("got %s", out)
	}
}

func TestPlanDiff(t *testing.T) {
	m := newFakeMachine(t)
	file := filepath.Join(m.dir, "etc/file")
	m.write("etc/file", "one\ntwo\n")
	encode := func(text string) []byte {
		raw, err := plans.Plan{Files: []plans.File{{Path: file, Content: base64.StdEncoding.EncodeToString([]byte(text))}},
			Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Name: "install", Image: "rancher/x:v1"}}}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	same := encode("one\ntwo\n")
	m.write("new.json", string(encode("one\n2\n")))

	// A plan file needs no agent.
	m.want(0, "-two\n    +2\n", "plan", "diff", m.dir+"/new.json")
	m.want(0, "> run instructions[0] install: from image rancher/x:v1", "plan", "diff", m.dir+"/new.json")
	if out := m.want(3, "~ change "+file, "plan", "diff", "--no-content", "--exit-code", m.dir+"/new.json"); strings.Contains(out, "two") {
		t.Errorf("content is shown:\n%s", out)
	}
	m.want(1, "decoding plan", "plan", "diff", m.dir+"/etc/file")
	m.write("mistyped.json", `{"instruction": [{"script": "true"}]}`)
	m.want(0, `Warning: the plan has a field "instruction"`, "plan", "diff", m.dir+"/mistyped.json")

	m.serve()
	m.agent.plan = same
	m.agent.state = func() engine.State {
		return engine.State{Source: "hub", Checksum: plans.Checksum(same), Last: &journal.Attempt{Checksum: plans.Checksum(same),
			Succeeded: true, Ended: time.Now()}}
	}
	m.want(0, "1 of 1 files are unchanged\nno instruction runs: the plan is applied", "plan", "diff", "--exit-code")
	m.want(0, "compared with the delivered plan: files: ~"+file, "plan", "diff", m.dir+"/new.json")
	m.write("etc/file", "drifted\n")
	m.want(3, "-drifted", "plan", "diff", "--exit-code")
	if raw, err := os.ReadFile(file); string(raw) != "drifted\n" || err != nil {
		t.Errorf("the file was touched: %q, %v", raw, err)
	}
}

func TestLogs(t *testing.T) {
	m := newFakeMachine(t)
	m.serve()
	directory := func(index int) string { return filepath.Join(m.dir, "var/state/runs", fmt.Sprintf("abc-1-%d", index)) }
	m.write("var/state/runs/abc-1-0/stdout.log", "first\n")
	m.write("var/state/runs/abc-1-0/stderr.log", "oh\n")
	m.write("var/state/runs/abc-1-1/stdout.log", "head\n")
	m.write("var/state/runs/abc-1-1/stdout.log.1", "one\n")
	m.write("var/state/runs/abc-1-1/stdout.log.2", "two\n")
	m.write("var/state/runs/abc-1-1/stdout.log.10", "ten\n")
	m.write("var/state/runs/abc-1-1/spec.json", "secret")
	started := time.Now().Add(-time.Minute)
	old := journal.Attempt{Source: "hub", Checksum: "old", Number: 1, Started: started.Add(-time.Hour), Ended: started,
		Instructions: []journal.InstructionRun{{RunDir: m.dir + "/gone", Ended: started}}}
	last := journal.Attempt{Source: "hub", Checksum: "abc", Number: 2, Started: started, Ended: started.Add(time.Second),
		Instructions: []journal.InstructionRun{
			{Index: 0, Name: "a", RunDir: directory(0), Ended: started}, {Index: 1, Name: "b", RunDir: directory(1), Ended: started}}}
	m.agent.attempts = []journal.Attempt{old, last}

	all := "==> instructions[0] (a), stdout <==\nfirst\n==> instructions[0] (a), stderr <==\noh\n==> instructions[1] (b), stdout <==\n" +
		"head\none\ntwo\n\n[... truncated ...]\nten\n"
	if out := m.want(0, "", "logs"); out != all {
		t.Errorf("got %s", out)
	}
	// Following an attempt that has ended returns.
	if out := m.want(0, "", "logs", "-f"); out != all {
		t.Errorf("got %s", out)
	}
	for _, name := range []string{"a", "0"} {
		if out := m.want(0, "", "logs", "--instruction", name, "--stderr"); out != "oh\n" {
			t.Errorf("got %q", out)
		}
	}
	m.want(0, "The output of instructions[0] was removed.", "logs", "--attempt", "1")
	m.want(1, "attempt 7 not found", "logs", "--attempt", "7")
	m.want(1, `attempt 2 did not run instruction "c"`, "logs", "--instruction", "c")
	m.want(0, directory(1)+"/stdout.log.10", "logs", "-o", "json")
	m.want(0, "2  ", "history", "--limit", "1")
}

// Following prints output as it is written, continues with the next instruction, and ends with the attempt.
func TestLogsFollow(t *testing.T) {
	m := newFakeMachine(t)
	m.write("var/state/journal", "")
	m.write("var/state/runs/abc-1-0/stdout.log", "one\n")
	first := journal.InstructionRun{Name: "a", RunDir: m.dir + "/var/state/runs/abc-1-0", Started: time.Now()}
	second := journal.InstructionRun{Index: 1, Name: "b", RunDir: m.dir + "/var/state/runs/abc-1-1", Started: time.Now()}
	attempt := journal.Attempt{Source: "hub", Checksum: "abc", Number: 1, Started: time.Now(), Instructions: []journal.InstructionRun{first}}
	states := make(chan journal.Attempt, 1)
	states <- attempt
	var requests atomic.Int32
	m.agent.state = func() engine.State {
		requests.Add(1)
		now := <-states
		states <- now
		return engine.State{Source: "hub", Phase: engine.PhaseApplying, Last: &now}
	}
	change := func(next journal.Attempt) {
		<-states
		states <- next
		appendTo(t, m.dir+"/var/state/journal", "{}\n")
	}
	m.serve()

	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := Main([]string{"logs", "-f", "--stdout", "--config", m.dir + "/config.yaml"}, w, io.Discard)
		w.Close()
		ended <- code
	}()
	read := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != want {
			t.Fatalf("got %q, %v, want %q", buf, err, want)
		}
	}
	read("==> instructions[0] (a), stdout <==\none\n")
	appendTo(t, first.RunDir+"/stdout.log", "two")
	read("two")
	before := requests.Load()
	for range 100 {
		appendTo(t, first.RunDir+"/stdout.log", " and more\n")
		read(" and more\n")
	}
	if now := requests.Load(); now != before {
		t.Errorf("%d requests for output, which needs none", now-before)
	}
	attempt.Instructions = []journal.InstructionRun{first, second}
	change(attempt)
	m.write("var/state/runs/abc-1-1/stdout.log", "three\n")
	read("==> instructions[1] (b), stdout <==\nthree\n")
	attempt.Ended = time.Now()
	change(attempt)
	if rest, err := io.ReadAll(r); len(rest) != 0 || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	if err := (host.Local{}).AppendFile(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestUnprivilegedUser shows that B22 cannot happen: help, version and validation need no root, and errors name their cause.
func TestUnprivilegedUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change the user")
	}
	dir, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/system-agent", program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"--version", "system-agent version dev\n"}, {"version", "system-agent dev"}, {"--help", "Inspection and troubleshooting"},
		{"status --help", "Exit codes"}, {"validate-config /none.yml",
			"system-agent: reading configuration: open /none.yml: no such file or directory\n"},
		{"status", "system-agent: must be run as root: the agent's files belong to root\n"}, {"run", "system-agent: must be run as root"},
		{"doctor", "must be run as root"}, {"support-bundle", "must be run as root"}, {"leave --yes", "must be run as root"},
	} {
		cmd := exec.Command(dir+"/system-agent", strings.Fields(test.args)...)
		cmd.Env = append(os.Environ(), envAgent+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), test.want) || strings.Contains(string(out), "Validation failed") {
			t.Errorf("%s: got %s", test.args, out)
		}
	}
}
