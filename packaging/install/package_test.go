package install

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packaged lays the agent of a package out, and leaves the directories of the program to the script.
func packaged(m *machine) {
	m.write("usr/bin/rancher-system-agent", agentBinary, 0o755)
	m.write("usr/lib/packaged", "# comment\nprogram="+m.path("usr/bin/rancher-system-agent")+"\n", 0o644)
	for i, e := range m.env {
		if strings.HasPrefix(e, "CATTLE_AGENT_BIN_PREFIX=") {
			m.env[i] = "CATTLE_AGENT_BIN_PREFIX="
		}
	}
}

// files lists the files of the machine, without directories.
func (m *machine) files() []string {
	var found []string
	for _, name := range m.installed() {
		if info, err := os.Lstat(m.path(name)); err == nil && !info.IsDir() {
			found = append(found, name)
		}
	}
	return found
}

// TestPackage registers a machine on which a package has installed the agent: nothing is downloaded but what the registration needs, and
// the package's own files stay as they are, also when the agent leaves.
func TestPackage(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	packaged(m)
	script := hub.script(t)
	out, ok := m.run(script, nil, "--token", token, "--worker")
	if !ok || !strings.Contains(out, "Using the agent of the package drover-agent") || !strings.Contains(out, "The agent is running") {
		t.Fatalf("The script fails: %s", out)
	}
	want := []string{
		"etc/rancher/agent/cattle-id", "etc/rancher/agent/config.yaml", "etc/rancher/agent/machine-secret",
		"etc/systemd/rancher-system-agent.env", "etc/systemd/rancher-system-agent.service.d/10-directories.conf",
		"usr/bin/rancher-system-agent", "usr/lib/packaged", "var/lib/agent/rancher2_connection_info.json",
	}
	if diff := cmp.Diff(want, m.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if n := len(hub.requested("/assets/system-agent-amd64")); n != 0 {
		t.Errorf("%d downloads of an agent", n)
	}
	wantDropIn := "[Unit]\nConditionPathExists=\nConditionPathExists=" + m.path("etc/rancher/agent/config.yaml") +
		"\n[Service]\nEnvironmentFile=-" + m.path("etc/systemd/rancher-system-agent.env") + "\n"
	if diff := cmp.Diff(wantDropIn, m.read("etc/systemd/rancher-system-agent.service.d/10-directories.conf")); diff != "" {
		t.Errorf("drop-in (-want +got):\n%s", diff)
	}
	if env := m.read("etc/systemd/rancher-system-agent.env"); strings.Contains(env, "BIN_PREFIX") {
		t.Errorf("Without the package, a later installation would go to its directories:\n%s", env)
	}
	if out, ok := m.run(script, nil, "--token", token, "--worker"); !ok || !strings.Contains(out, "nothing changed") {
		t.Errorf("The second run changes something: %s", out)
	}

	out, ok = m.run(UninstallScript(), nil)
	if !ok || !strings.Contains(out, "package drover-agent is still installed") {
		t.Errorf("The uninstall script fails: %s", out)
	}
	if diff := cmp.Diff([]string{"usr/bin/rancher-system-agent", "usr/lib/packaged"}, m.files()); diff != "" {
		t.Errorf("files after uninstalling (-want +got):\n%s", diff)
	}
	if calls := m.read("calls"); !strings.Contains(calls, "systemctl stop rancher-system-agent\nsystemctl disable rancher-system-agent\n") {
		t.Errorf("calls:\n%s", calls)
	}
}

// TestPackageReplacesScript installs the package on a machine on which the script has installed the agent, and runs the script again
// without a token: unit and programs of the first installation go, identity and connection stay.
func TestPackageReplacesScript(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	script := hub.script(t)
	if out, ok := m.run(script, nil, "--token", token, "--worker"); !ok {
		t.Fatalf("The script fails: %s", out)
	}
	id, connection := m.read("etc/rancher/agent/cattle-id"), m.read("var/lib/agent/rancher2_connection_info.json")
	packaged(m)
	if out, ok := m.run(script, nil); !ok {
		t.Fatalf("The script fails: %s", out)
	}
	for _, name := range m.files() {
		if strings.HasPrefix(name, "usr/local/") || name == "etc/systemd/rancher-system-agent.service" {
			t.Errorf("left: %s", name)
		}
	}
	if m.read("etc/rancher/agent/cattle-id") != id || m.read("var/lib/agent/rancher2_connection_info.json") != connection {
		t.Error("The machine has another identity or connection")
	}
	want := `systemctl is-system-running
sync
systemctl is-active --quiet rancher-system-agent
systemctl disable rancher-system-agent
systemctl daemon-reload
systemctl enable rancher-system-agent
sync
systemctl restart rancher-system-agent
`
	if diff := cmp.Diff(want, m.read("calls")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestPackageRefuses(t *testing.T) {
	hub := newTestHub(t)
	for name, test := range map[string]struct {
		marker, env, want string
	}{
		"no program":        {marker: "nothing\n", want: "does not name the agent of a package"},
		"missing program":   {marker: "program=/nowhere/bin/agent\n", want: "does not name the agent of a package"},
		"another directory": {env: "CATTLE_AGENT_BIN_PREFIX=/opt/agent", want: "remove the variable or the package"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			packaged(m)
			if test.marker != "" {
				m.write("usr/lib/packaged", test.marker, 0o644)
			}
			before := m.files()
			out, ok := m.run(hub.script(t), []string{test.env}, "--token", token, "--worker")
			if ok || !strings.Contains(out, test.want) {
				t.Errorf("got %v, %s", ok, out)
			}
			if diff := cmp.Diff(before, m.files()); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPackagedUnit(t *testing.T) {
	want := map[string]bool{
		"ConditionPathExists=/etc/rancher/agent/config.yaml": true, "ExecStart=/usr/bin/rancher-system-agent run": true,
		"EnvironmentFile=-/etc/systemd/system/rancher-system-agent.env": true,
	}
	for line := range strings.Lines(string(PackagedUnit())) {
		delete(want, strings.TrimSpace(line))
		if strings.Contains(line, "@") {
			t.Errorf("left in the unit: %s", line)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing in the unit: %v", want)
	}
}
