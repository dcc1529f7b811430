package install

import (
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

// TestRunAgain shows that a running agent is replaced only by one that is there and verified, and not stopped before.
func TestRunAgain(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	args := []string{"--token", "secret", "--worker"}
	if _, ok := m.run(hub.script(t), nil, args...); !ok {
		t.Fatal("The first run fails")
	}
	first := m.installed()
	id := m.read("etc/rancher/agent/cattle-id") + m.read("etc/rancher/agent/machine-secret")

	t.Run("nothing changed", func(t *testing.T) {
		out, ok := m.run(hub.script(t), nil, args...)
		if !ok || !strings.Contains(out, "nothing changed") {
			t.Errorf("second run: %v", out)
		}
		if calls := m.read("calls"); strings.Contains(calls, "restart") || strings.Contains(calls, "stop") {
			t.Errorf("The agent was disturbed:\n%s", calls)
		}
		if got := len(hub.requested("/assets/system-agent-amd64")); got != 1 {
			t.Errorf("The binary was downloaded %d times", got)
		}
	})
	t.Run("token expired", func(t *testing.T) {
		hub.connect = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "expired", http.StatusUnauthorized) }
		defer func() { hub.connect = nil }()
		if _, ok := m.run(hub.script(t), nil, args...); ok {
			t.Error("The script succeeds")
		}
		if calls := m.read("calls"); strings.Contains(calls, "restart") {
			t.Errorf("The agent was restarted:\n%s", calls)
		}
	})
	t.Run("new binary does not verify", func(t *testing.T) {
		good := hub.files["system-agent-amd64"]
		hub.publish("system-agent-amd64", good+"# newer\n")
		hub.files["system-agent-amd64"] = good + "# tampered\n"
		if _, ok := m.run(hub.script(t), nil, args...); ok {
			t.Error("The script succeeds")
		}
		if m.read("usr/local/bin/system-agent") != good || strings.Contains(m.read("calls"), "restart") {
			t.Error("The running agent was touched")
		}
	})
	t.Run("new binary", func(t *testing.T) {
		hub.publish("system-agent-amd64", agentBinary+"# newer\n")
		if _, ok := m.run(hub.script(t), nil, args...); !ok {
			t.Fatal("The script fails")
		}
		if !strings.HasSuffix(m.read("usr/local/bin/system-agent"), "# newer\n") || !strings.Contains(m.read("calls"), "restart") {
			t.Error("The new agent does not run")
		}
	})
	t.Run("interrupted before the restart", func(t *testing.T) {
		hub.publish("system-agent-amd64", agentBinary+"# newer still\n")
		m.write("reload-fails", "", 0o600) // once
		if _, ok := m.run(hub.script(t), nil, args...); ok || strings.Contains(m.read("calls"), "restart") {
			t.Fatal("The script was not interrupted")
		}
		for _, want := range []bool{true, false} {
			_, ok := m.run(hub.script(t), nil, args...)
			if got := strings.Contains(m.read("calls"), "systemctl restart"); !ok || got != want {
				t.Errorf("The script succeeds: %t, and restarts the agent: %t, want %t", ok, got, want)
			}
		}
	})
	t.Run("service is down", func(t *testing.T) {
		_ = os.Remove(m.path("active"))
		if _, ok := m.run(hub.script(t), nil, args...); !ok || !strings.Contains(m.read("calls"), "restart") {
			t.Error("The service was not started")
		}
	})
	t.Run("an announcement that was left behind", func(t *testing.T) {
		for what, content := range map[string]string{"nothing changed": "", "new binary": "# newer than that\n"} {
			_ = os.Remove(m.path("active"))
			m.write("var/lib/agent/interlock/restart-pending", "", 0o600)
			hub.publish("system-agent-amd64", hub.files["system-agent-amd64"]+content)
			if _, ok := m.run(hub.script(t), nil, args...); !ok {
				t.Fatal("The script fails")
			}
			if _, err := os.Stat(m.path("var/lib/agent/interlock/restart-pending")); err == nil {
				t.Errorf("%s: it is still there, and the next plan waits", what)
			}
		}
	})
	if got := m.read("etc/rancher/agent/cattle-id") + m.read("etc/rancher/agent/machine-secret"); got != id {
		t.Error("The identity changed")
	}
	if diff := cmp.Diff(first, m.installed(), cmpSorted); diff != "" {
		t.Errorf("installed files (-first +last):\n%s", diff)
	}
}

func TestWaitsForRunningPlan(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	args := []string{"--token", "secret", "--worker"}
	if _, ok := m.run(hub.script(t), nil, args...); !ok {
		t.Fatal("The first run fails")
	}
	hub.publish("system-agent-amd64", agentBinary+"# newer\n")

	m.write("var/lib/agent/interlock/applyinator-active", "", 0o600)
	unit := m.read("etc/systemd/rancher-system-agent.service")
	m.write("etc/systemd/rancher-system-agent.service", strings.Replace(unit, "/system-agent run", "/rancher-system-agent sentinel", 1), 0o644)
	out, ok := m.run(hub.script(t), nil, args...)
	if ok || !strings.Contains(out, "has been applying a plan for 5 minutes") {
		t.Errorf("with a plan of a rancher-system-agent that never ends: %s", out)
	}
	if strings.Contains(m.read("usr/local/bin/system-agent"), "newer") {
		t.Error("The binary was replaced while a plan ran")
	}

	// An agent that keeps a journal loses nothing when it is replaced, so it is not waited for without end.
	m.write("etc/systemd/rancher-system-agent.service", unit, 0o644)
	out, ok = m.run(hub.script(t), nil, args...)
	if !ok || !strings.Contains(out, "continues with it after the restart") ||
		!strings.Contains(m.read("usr/local/bin/system-agent"), "newer") {
		t.Errorf("with a plan that never ends: %s", out)
	}
	hub.publish("system-agent-amd64", agentBinary+"# newest\n")

	m.stub("sleep", `cp "$ROOT/var/lib/agent/interlock/restart-pending" "$ROOT/announced"
echo "$PPID" >"$ROOT/announced-by"; sed 's/.*) //' "/proc/$PPID/stat" | cut -d ' ' -f 20 >>"$ROOT/announced-by"
rm "$ROOT/var/lib/agent/interlock/applyinator-active"`)
	if _, ok := m.run(hub.script(t), nil, args...); !ok {
		t.Error("The script fails although the plan ended")
	}
	announcement := regexp.MustCompile(`^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \S+ \d{4}\npid=(\d+) start=(\d+) boot=[0-9a-f-]{36}` +
		`\n$`).FindStringSubmatch(m.read("announced"))
	if by := strings.Fields(m.read("announced-by")); announcement == nil || len(by) != 2 || announcement[1] != by[0] ||
		announcement[2] != by[1] {
		t.Errorf("the announcement %q is not of process %v", m.read("announced"), by)
	}
	if _, err := os.Stat(m.path("var/lib/agent/interlock/restart-pending")); err == nil {
		t.Error("The agent is still asked to hold")
	}
}

func TestUninstall(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
		t.Fatal("The installation fails")
	}
	// A run of the install script was killed.
	m.write("usr/local/bin/.system-agent-install.abcdef/register.conf", "secret", 0o600)
	// The script finds the folders by what the installation wrote down.
	var env []string
	for _, e := range m.env {
		if !strings.HasPrefix(e, "CATTLE_AGENT") || strings.HasPrefix(e, "CATTLE_AGENT_UNIT_DIR") {
			env = append(env, e)
		}
	}
	m.env = env
	out, ok := m.run(UninstallScript(), nil)
	if !ok || !strings.Contains(out, "until its Machine is deleted there") {
		t.Errorf("uninstalling: %s", out)
	}
	for _, name := range m.installed() {
		if info, err := os.Lstat(m.path(name)); err != nil || !info.IsDir() {
			t.Errorf("left: %s", name)
		}
	}
	calls := m.read("calls")
	if !strings.Contains(calls, "systemctl stop") || !strings.Contains(calls, "systemctl disable") {
		t.Errorf("calls:\n%s", calls)
	}
	// Units are named by engine.unit: for the hub's plans, and with a part of a checksum for local ones.
	run := plans.ShortChecksum(plans.Checksum([]byte("{}"))) + "-1-0.service"
	for _, unit := range []string{"system-agent-" + run, "system-agent-" + plans.Checksum([]byte("local/x"))[:6] + "-" + run} {
		if !slices.ContainsFunc(strings.Fields(calls), func(pattern string) bool {
			matches, err := path.Match(pattern, unit)
			return err == nil && matches
		}) {
			t.Errorf("%s is not stopped; calls:\n%s", unit, calls)
		}
	}
	if _, ok := m.run(UninstallScript(), nil); !ok {
		t.Error("It cannot be run twice")
	}
}

// TestRegisteredBefore: the hub does not change the roles or addresses of a machine that it knows, and the script succeeds.
func TestRegisteredBefore(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	for _, again := range []bool{false, true} {
		out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
		if !ok || strings.Contains(out, "it keeps its roles") != again {
			t.Errorf("again %t: %s", again, out)
		}
	}
}

// TestUninstallRefuses shows that a folder that is configured wrongly does not take the machine with it. S9.
func TestUninstallRefuses(t *testing.T) {
	for _, dir := range []string{"/", "/var", "/var/lib", "/etc/rancher/..", "var"} {
		m := newMachine(t)
		if out, ok := m.run(UninstallScript(), []string{"CATTLE_AGENT_VAR_DIR=" + dir}); ok || !strings.Contains(out, "Refusing to remove") {
			t.Errorf("removing %s: %s", dir, out)
		}
	}
}

func TestShellcheck(t *testing.T) {
	m := newMachine(t)
	script, err := Script(Var{VarServer, "https://hub"})
	if err != nil {
		t.Fatal(err)
	}
	m.write("install.sh", string(script), 0o600)
	m.write("uninstall.sh", string(UninstallScript()), 0o600)
	out, err := exec.Command(realProgram(t, "shellcheck"), m.path("install.sh"), m.path("uninstall.sh")).CombinedOutput()
	if err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}

// TestOthersWriteTheirNames: what the script of rancher-system-agent does to its names leaves this agent able to start, also where an
// earlier version of this script made links of them.
func TestOthersWriteTheirNames(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	names := map[string]string{"rancher-system-agent": "system-agent", "rancher-system-agent-uninstall.sh": "system-agent-uninstall.sh"}
	install := func() {
		t.Helper()
		if _, ok := m.run(hub.script(t), nil, "--token", "t", "--worker"); !ok {
			t.Fatal("The script failed")
		}
	}
	overwrite := func(when string) {
		t.Helper()
		for name, own := range names {
			before := m.read("usr/local/bin/" + own)
			m.write("usr/local/bin/"+name, "another's", 0o755) // opens what a link points to, as curl and cp do
			if got := m.read("usr/local/bin/" + own); got != before {
				t.Errorf("%s: writing %s changes %s to %q", when, name, own, got)
			}
		}
	}
	install()
	overwrite("after an installation")
	install()
	if got, err := exec.Command(m.path("usr/local/bin/rancher-system-agent"), "--version").CombinedOutput(); string(got) != "test\n" {
		t.Errorf("after the script ran again, rancher-system-agent --version: %q, %v", got, err)
	}
	for name, own := range names {
		if err := os.Remove(m.path("usr/local/bin/" + name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(own, m.path("usr/local/bin/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	install()
	overwrite("after links were replaced")
}

// TestOneRunAtATime: a run beside another one changes nothing. The run after a killed one removes what that has left.
func TestOneRunAtATime(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	const killed = "usr/local/bin/.system-agent-install.abcdef/register.conf"
	m.write(killed, "secret", 0o600)
	bin, err := os.Open(m.path("usr/local/bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	if err := syscall.Flock(int(bin.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	args := []string{"--token", "secret", "--worker"}
	if out, ok := m.run(hub.script(t), nil, args...); ok || !strings.Contains(out, "already runs on this machine") {
		t.Errorf("beside another run: %s", out)
	}
	if diff := cmp.Diff([]string{killed}, m.files()); diff != "" || len(hub.requested("/v3/connect/agent")) > 0 {
		t.Errorf("it registers the machine, or leaves files (-want +got):\n%s", diff)
	}
	if err := syscall.Flock(int(bin.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.run(hub.script(t), nil, args...); !ok || m.read(killed) != "" {
		t.Errorf("after it: the script succeeds: %t, and leaves %q of the killed run", ok, m.read(killed))
	}
}

// TestFullDisk: a file that does not fit leaves the installation as it was, without a part of any file.
func TestFullDisk(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	args := []string{"--token", "secret", "--worker"}
	if _, ok := m.run(hub.script(t), nil, args...); !ok {
		t.Fatal("The first run fails")
	}
	before := m.installed()
	hub.publish("system-agent-amd64", agentBinary+"# newer\n")
	cp := realProgram(t, "cp")
	m.stub("cp", `case $2 in */config.yaml.new) echo part >"$2" && exit 1 ;; esac; exec `+cp+` "$@"`)
	out, ok := m.run(hub.script(t), []string{"CATTLE_PRESERVE_WORKDIR=true"}, args...)
	if ok || !strings.Contains(out, "Cannot write "+m.path("etc/rancher/agent/config.yaml")) {
		t.Errorf("The script succeeds or says something else: %s", out)
	}
	if diff := cmp.Diff(before, m.installed(), cmpSorted); diff != "" {
		t.Errorf("installed files (-before +after):\n%s", diff)
	}
	if m.read("usr/local/bin/system-agent") != agentBinary || strings.Contains(m.read("calls"), "restart") {
		t.Error("The agent was replaced or restarted")
	}
	m.stub("cp", "exec "+cp+` "$@"`)
	if _, ok := m.run(hub.script(t), nil, args...); !ok || m.read("usr/local/bin/system-agent") == agentBinary {
		t.Error("The next run does not replace the agent")
	}
}

// TestCannotEnable: what systemctl says is in the message, and the next run enables and starts the service.
func TestCannotEnable(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	const reason = "Failed to enable unit: File '/etc/systemd/system/system-agent.service' already exists and is not a symlink"
	systemctl := m.read("stubs/systemctl")
	m.stub("systemctl", `case $1 in enable) echo "`+reason+`" >&2; exit 1 ;; esac; `+strings.TrimPrefix(systemctl, "#!/bin/sh\n"))
	out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
	if ok || !strings.Contains(out, "Cannot enable the service rancher-system-agent: "+reason) {
		t.Errorf("The script succeeds or says something else: %s", out)
	}
	m.stub("systemctl", strings.TrimPrefix(systemctl, "#!/bin/sh\n"))
	if _, ok := m.run(hub.script(t), nil); !ok || !strings.Contains(m.read("calls"), "systemctl restart rancher-system-agent") {
		t.Errorf("The next run does not start the service: %s", m.read("calls"))
	}
}

// TestOtherFileSystemHangs has a machine on which a sync of all file systems does not end.
func TestOtherFileSystemHangs(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.stub("sync", `[ "$1" = -f ] || echo hangs >>"$ROOT/synced"`)
	if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok || m.read("synced") != "" {
		t.Errorf("The script succeeds: %t, and syncs all file systems: %q", ok, m.read("synced"))
	}
}

// TestDocumentMark has a configuration with the marks of a YAML document. The agent reads the first document only, so that all keys have to
// be in it.
func TestDocumentMark(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	const tunnel = "tunnel:\n  enabled: true\n  allow:\n  - 127.0.0.1:22\n"
	m.write("etc/rancher/agent/config.yaml", "--- # by hand\nremoteEnabled: true\n"+tunnel+"...\n", 0o600)
	for _, run := range []string{"first", "second"} {
		if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
			t.Fatalf("The %s run fails", run)
		}
		config := m.read("etc/rancher/agent/config.yaml")
		if !strings.HasSuffix(config, "\n"+tunnel) || regexp.MustCompile(`(?m)^(---|\.\.\.)`).MatchString(config) {
			t.Errorf("after the %s run:\n%s", run, config)
		}
	}
}
