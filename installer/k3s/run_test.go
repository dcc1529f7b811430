package k3s

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/installer/testenv/shelltest"
)

// releaseScript does what matters of a k3s release's install.sh: it disables the unit and writes it again.
const releaseScript = `
[ "$INSTALL_K3S_SKIP_DOWNLOAD $INSTALL_K3S_SKIP_ENABLE $INSTALL_K3S_SKIP_START" = "true true true" ] || exit 9
[ -x "$INSTALL_K3S_BIN_DIR/k3s" ] || exit 8
systemctl disable k3s.service
mkdir -p "$INSTALLER_ROOT/etc/systemd/system"
env | grep -E '^(K3S|CONTAINERD)_|_PROXY=' >"$INSTALLER_ROOT/etc/systemd/system/k3s.service.env"
echo "release script: exec ${INSTALL_K3S_EXEC:-} args $*"
`

const (
	stampFile = "var/lib/rancher/k3s/restart_stamp"
	sumFile   = "var/lib/rancher/k3s/environment_sum"
)

func machine(t *testing.T) *shelltest.Machine {
	m := shelltest.New(t, runScript, map[string]string{"k3s": "the program", "installer.sh": releaseScript})
	m.Sum("k3s")
	return m
}

func TestRestartStamp(t *testing.T) {
	const reload, enable = "daemon-reload", "enable k3s.service"
	installed := []string{reload, enable}
	started := []string{reload, enable, "--no-block start k3s.service"}
	restarted := []string{reload, enable, "--no-block restart k3s.service"}
	recovered := []string{reload, enable, "reset-failed k3s.service", "--no-block restart k3s.service"}

	m := machine(t)
	steps := []struct {
		name  string
		state string // the unit's state before, where the service manager changed it
		stamp string
		want  []string
		kept  string
	}{
		{name: "first start", stamp: "one", want: started, kept: "one"},
		{name: "same stamp", stamp: "one", want: installed, kept: "one"},
		{name: "no stamp", stamp: "", want: installed, kept: "one"},
		{name: "changed stamp", stamp: "two", want: restarted, kept: "two"},
		{name: "same stamp, failed unit", state: "failed", stamp: "two", want: recovered, kept: "two"},
		{name: "same stamp, stopped unit", state: "inactive", stamp: "two", want: started, kept: "two"},
		{name: "same stamp, unit still starting", state: "activating", stamp: "two", want: installed, kept: "two"},
		{name: "changed stamp, unit still starting", state: "activating", stamp: "three", want: restarted, kept: "three"},
	}
	for _, step := range steps {
		if step.state != "" {
			m.SetState("k3s.service", step.state)
		}
		if diff := cmp.Diff(step.want, m.MustRun("RESTART_STAMP="+step.stamp, "DRAIN_HASH=ignored")); diff != "" {
			t.Fatalf("%s: orders to systemctl (-want +got):\n%s", step.name, diff)
		}
		if got := strings.TrimSpace(m.Read(stampFile)); got != step.kept {
			t.Fatalf("%s: kept stamp is %q, want %q", step.name, got, step.kept)
		}
	}
}

// TestStampInTheDataDirectory: the published images keep the stamp there.
func TestStampInTheDataDirectory(t *testing.T) {
	m := machine(t)
	const stamp = "data/restart_stamp"
	m.MustRun("RESTART_STAMP=one", "K3S_DATA_DIR="+m.Root+"/data")
	if got := strings.TrimSpace(m.Read(stamp)); got != "one" || m.Exists(stampFile) {
		t.Errorf("kept stamp is %q, file in the default directory exists: %t", got, m.Exists(stampFile))
	}
	want := []string{"daemon-reload", "enable k3s.service"}
	if diff := cmp.Diff(want, m.MustRun("RESTART_STAMP=one", "K3S_DATA_DIR="+m.Root+"/data")); diff != "" {
		t.Errorf("orders to systemctl (-want +got):\n%s", diff)
	}
}

// TestVariables: the service runs with the variables that it was given last. What an earlier installation has not noted is no change.
func TestVariables(t *testing.T) {
	m := machine(t)
	const reload, enable = "daemon-reload", "enable k3s.service"
	installed, restarted := []string{reload, enable}, []string{reload, enable, "--no-block restart k3s.service"}
	m.MustRun("RESTART_STAMP=one")
	if err := os.Remove(m.Root + "/" + sumFile); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		env  []string
		want []string
	}{
		{"a variable, and none noted before", []string{"HTTPS_PROXY=a", "NO_PROXY=b"}, installed},
		{"in another order", []string{"NO_PROXY=b", "HTTPS_PROXY=a"}, installed},
		{"changed", []string{"NO_PROXY=b", "HTTPS_PROXY=c"}, restarted},
		{"another one", []string{"NO_PROXY=b", "HTTPS_PROXY=c", "K3S_DATA_DIR=" + m.Root + "/data"}, restarted},
		{"none", nil, restarted},
		{"none still", nil, installed},
	} {
		if diff := cmp.Diff(step.want, m.MustRun(append(step.env, "RESTART_STAMP=one")...)); diff != "" {
			t.Errorf("%s: orders to systemctl (-want +got):\n%s", step.name, diff)
		}
	}
	if info, err := os.Stat(m.Root + "/" + sumFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the checksum of the variables, of which some are secret: %v, %v", info.Mode(), err)
	}
}

func TestSkipStartOnlyInstalls(t *testing.T) {
	m := machine(t)
	if diff := cmp.Diff([]string{"daemon-reload"}, m.MustRun("RESTART_STAMP=one", "INSTALL_K3S_SKIP_START=true")); diff != "" {
		t.Errorf("orders to systemctl on a new machine (-want +got):\n%s", diff)
	}
	if m.Exists(stampFile) {
		t.Error("the restart stamp was kept although nothing was started")
	}
	m.MustRun("RESTART_STAMP=one")
	got := m.MustRun("RESTART_STAMP=two", "INSTALL_K3S_SKIP_START=true")
	if diff := cmp.Diff([]string{"daemon-reload", "enable k3s.service"}, got); diff != "" {
		t.Errorf("an enabled unit stays enabled and is not restarted (-want +got):\n%s", diff)
	}
	if got := strings.TrimSpace(m.Read(stampFile)); got != "one" {
		t.Errorf("kept stamp is %q, want that of the last start", got)
	}
}

func TestStampIsKeptOnlyAfterTheOrder(t *testing.T) {
	m := machine(t)
	code, out := m.Run("RESTART_STAMP=one", "FAKE_REFUSE=yes")
	if code == 0 || !strings.Contains(out, "installer: cannot start k3s.service") {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
	if m.Exists(stampFile) {
		t.Error("the restart stamp was kept although systemd refused")
	}
}

func TestRestartThatTakesLongIsLeftToSystemd(t *testing.T) {
	m := machine(t)
	m.MustRun("RESTART_STAMP=one")
	code, out := m.Run("RESTART_STAMP=two", "FAKE_STUCK=yes")
	if code != 0 || !strings.Contains(out, "has not stopped after 3 s") {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
	if got := strings.TrimSpace(m.Read(stampFile)); got != "two" {
		t.Errorf("kept stamp is %q", got)
	}
}

func TestFilesAreReplacedWhole(t *testing.T) {
	m := machine(t)
	m.MustRun()
	running, err := os.Open(m.Root + "/usr/local/bin/k3s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Close() }()
	before, _ := running.Stat()

	m.MustRun()
	same, _ := os.Stat(running.Name())
	if !os.SameFile(before, same) {
		t.Error("a program that has not changed was replaced")
	}

	m.Artifact("k3s", "a newer program")
	m.Sum("k3s")
	m.MustRun()
	old := make([]byte, 100)
	n, _ := running.Read(old)
	if got := string(old[:n]); got != "the program" {
		t.Errorf("the running program's file was written to: %q", got)
	}
	if got := m.Read("usr/local/bin/k3s"); got != "a newer program" {
		t.Errorf("installed program is %q", got)
	}
	if mode := m.Mode("usr/local/bin/k3s"); mode != 0o755 {
		t.Errorf("mode of the program is %o", mode)
	}
}

func TestContainerImages(t *testing.T) {
	m := machine(t)
	stem := "k3s-airgap-images-" + shelltest.Arch()
	m.Artifact(stem+".tar", "images")
	m.MustRun()
	if got := m.Read("var/lib/rancher/k3s/agent/images/" + stem + ".tar"); got != "images" {
		t.Errorf("images are %q", got)
	}
	if err := os.Remove(m.Image + "/" + stem + ".tar"); err != nil {
		t.Fatal(err)
	}
	m.Artifact(stem+".tar.zst", "newer images")
	m.MustRun()
	if m.Exists("var/lib/rancher/k3s/agent/images/" + stem + ".tar") {
		t.Error("the older tarball is still there")
	}
	m.MustRun("K3S_DATA_DIR=" + m.Root + "/data")
	if !m.Exists("data/agent/images/" + stem + ".tar.zst") {
		t.Error("K3S_DATA_DIR was not honored")
	}
}

func TestRoles(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		unit string
	}{
		{name: "nothing said", unit: "k3s.service"},
		{name: "agent", env: []string{"INSTALL_K3S_EXEC=agent"}, unit: "k3s-agent.service"},
		{name: "agent with arguments", env: []string{"INSTALL_K3S_EXEC=agent --debug"}, unit: "k3s-agent.service"},
		{name: "server with arguments", env: []string{"INSTALL_K3S_EXEC=server --debug"}, unit: "k3s.service"},
		{name: "arguments alone", env: []string{"INSTALL_K3S_EXEC=--debug"}, unit: "k3s.service"},
		{name: "a server to join", env: []string{"K3S_URL=https://a:6443"}, unit: "k3s-agent.service"},
		{name: "a name", env: []string{"INSTALL_K3S_NAME=two"}, unit: "k3s-two.service"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := []string{"daemon-reload", "enable " + test.unit, "--no-block start " + test.unit}
			if diff := cmp.Diff(want, machine(t).MustRun(test.env...)); diff != "" {
				t.Errorf("orders to systemctl (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*shelltest.Machine)
		env     []string
		want    string
	}{
		{name: "damaged program", prepare: func(m *shelltest.Machine) { m.Artifact("k3s", "half a prog") },
			want: "installer: k3s is damaged: its checksum is not the one in sha256sum-" + shelltest.Arch() + ".txt\n"},
		{name: "image of another architecture", prepare: func(m *shelltest.Machine) {
			_ = os.Remove(m.Image + "/sha256sum-" + shelltest.Arch() +
				".txt")
		},
			want: "installer: the image has no sha256sum-" + shelltest.Arch() + ".txt: was it built for " + shelltest.Arch() + "?\n"},
		{name: "no program", prepare: func(m *shelltest.Machine) { _ = os.Remove(m.Image + "/k3s") },
			want: "installer: the image has no k3s\n"},
		{name: "unknown role", env: []string{"INSTALL_K3S_EXEC=etcd"},
			want: "installer: INSTALL_K3S_EXEC must begin with server or agent, not with etcd\n"},
		{name: "other role runs", prepare: func(m *shelltest.Machine) { m.SetState("k3s-agent.service", "active") },
			want: "installer: k3s-agent runs on this machine and the plan wants k3s: run k3s-agent-uninstall.sh first\n"},
		{name: "folder that cannot be written", env: []string{"INSTALL_K3S_BIN_DIR=/proc/nowhere"},
			want: "installer: cannot write to /proc/nowhere: set INSTALL_K3S_BIN_DIR to a folder that can be written\n"},
		{name: "release script fails", prepare: func(m *shelltest.Machine) { m.Artifact("installer.sh", "exit 7") },
			want: "installer: installed ROOT/usr/local/bin/k3s\ninstaller: the install script of k3s failed (exit code 7), its output is above\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := machine(t)
			if test.prepare != nil {
				test.prepare(m)
			}
			code, out := m.Run(test.env...)
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if diff := cmp.Diff(test.want, strings.ReplaceAll(out, m.Root, "ROOT")); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if orders := m.Orders(); orders != nil {
				t.Errorf("systemctl was asked to: %v", orders)
			}
		})
	}
}
