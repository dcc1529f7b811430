package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// installable is a directory in which join and leave install: the scripts take their directories from variables, and systemctl is a
// program that records its arguments.
type installable struct {
	t    *testing.T
	root string
}

func newInstallable(t *testing.T) *installable {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, as an installation does")
	}
	for _, program := range []string{"curl", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing: install it, make test does", program)
		}
	}
	if found := findScripts(uninstallScripts, append(filepath.SplitList(os.Getenv("PATH")), uninstallDirectories...)); len(found) > 0 {
		t.Skipf("this machine has a distribution that must not be removed: %s", found)
	}
	m := &installable{t: t, root: t.TempDir()}
	m.program("stubs/systemctl", `echo "systemctl $*" >>"`+m.path("calls")+`"
case $1 in is-system-running) echo running ;; is-active) exit 3 ;; esac`)
	for name, value := range map[string]string{
		"PATH": m.path("stubs") + ":" + os.Getenv("PATH"), envAgent: "1", "CATTLE_AGENT_CONFIG_DIR": m.path("etc/rancher/agent"),
		"CATTLE_AGENT_VAR_DIR": m.path("var/lib/agent"), "CATTLE_AGENT_BIN_PREFIX": m.path("usr/local"),
		"CATTLE_AGENT_UNIT_DIR": m.path("etc/systemd"),
		"ARCH":                  "amd64", "CATTLE_AGENT_RETRY_COUNT": "1", "HTTP_PROXY": "", "HTTPS_PROXY": "", "http_proxy": "",
		"https_proxy":  "",
		"CATTLE_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
	return m
}

func (m *installable) path(name string) string { return filepath.Join(m.root, name) }

func (m *installable) program(name, body string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *installable) read(name string) string {
	raw, _ := os.ReadFile(m.path(name))
	return string(raw)
}

func (m *installable) run(stdin string, args ...string) (int, string) {
	m.t.Helper()
	// A process of its own: what it writes must come as it is written, and its token must be nowhere in its arguments.
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// joinHub registers machines and notes what they say.
func joinHub(t *testing.T) (*httptest.Server, *http.Header) {
	t.Helper()
	seen := &http.Header{}
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/cacerts", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(caOf(server)) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/v3/connect/agent", func(w http.ResponseWriter, r *http.Request) {
		*seen = r.Header.Clone()
		fmt.Fprint(w, `{"kubeConfig":"k","namespace":"fleet-default","secretName":"plan"}`)
	})
	return server, seen
}

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// leftIn returns the files of a pattern that were not there before, as those of a test that was killed were.
func leftIn(pattern string, present []string) []string {
	now, _ := filepath.Glob(pattern)
	return slices.DeleteFunc(now, func(path string) bool { return slices.Contains(present, path) })
}

func TestJoinAndLeave(t *testing.T) {
	const token = "hunter2-token"
	present, _ := filepath.Glob("/run/rancher-system-agent-join-*")
	m := newInstallable(t)
	hub, seen := joinHub(t)
	sum := sha256.Sum256(caOf(hub))
	code, out := m.run(token+"\n", "join", "--server", hub.URL, "--token-file", "-", "--ca-checksum", hex.EncodeToString(sum[:]),
		"--worker", "--control-plane",
		"--node-name", "n 1", "--label", "a=b", "--label", "c=d", "--taint", "x=y:NoSchedule", "--address", "192.0.2.7")
	if code != 0 || !strings.Contains(out, "Starting the service") || strings.Contains(out, token) {
		t.Fatalf("got %d\n%s", code, out)
	}
	for header, want := range map[string]string{"Authorization": "Bearer " + token, "X-Cattle-Role-Worker": "true", "X-Cattle-Role-Etcd": "",
		"X-Cattle-Role-Control-Plane": "true", "X-Cattle-Node-Name": "n 1", "X-Cattle-Labels": "a=b,c=d",
		"X-Cattle-Taints": "x=y:NoSchedule", "X-Cattle-Address": "192.0.2.7"} {
		if got := seen.Get(header); got != want {
			t.Errorf("%s is %q, not %q", header, got, want)
		}
	}
	// What was installed is this very program, and it works.
	installed, err := exec.Command(m.path("usr/local/bin/rancher-system-agent"), "--version").Output()
	if err != nil || string(installed) != "system-agent version dev\n" {
		t.Errorf("got %q, %v", installed, err)
	}
	if !strings.Contains(m.read("etc/rancher/agent/config.yaml"), "remoteEnabled: true") ||
		m.read("var/lib/agent/rancher2_connection_info.json") == "" {
		t.Error("it is not configured")
	}
	if left := leftIn("/run/rancher-system-agent-join-*", present); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	if code, out := m.run("no\n", "leave"); code != 1 || !strings.Contains(out,
		"Type yes to continue: system-agent: canceled: nothing was removed") {
		t.Errorf("got %d\n%s", code, out)
	}
	if m.read("etc/rancher/agent/config.yaml") == "" {
		t.Fatal("the agent was removed without confirmation")
	}
	m.program("stubs/k3s-uninstall.sh", "echo k3s is gone; echo purged >>"+m.path("calls"))
	if code, out := m.run("yes\n", "leave", "--purge-distribution"); code != 0 || !strings.Contains(out, "k3s is gone") ||
		!strings.Contains(out, "Removed "+m.path("var/lib/agent")) {
		t.Errorf("got %d\n%s", code, out)
	}
	// The agent and what it has started are stopped before the distribution is removed, so that they do not install it again.
	before, _, purged := strings.Cut(m.read("calls"), "purged")
	if !purged || !strings.Contains(before, "systemctl stop rancher-system-agent system-agent-[0-9a-f]") {
		t.Errorf("got\n%s", m.read("calls"))
	}
	for _, gone := range []string{"etc/rancher/agent", "var/lib/agent", "usr/local/bin/system-agent",
		"etc/systemd/rancher-system-agent.service"} {
		if _, err := os.Lstat(m.path(gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still there", gone)
		}
	}
}

func TestJoinFailures(t *testing.T) {
	m := newInstallable(t)
	hub, seen := joinHub(t)
	if code, out := m.run("", "join", "--server", hub.URL, "--token-file", "-", "--worker"); code != 1 || !strings.Contains(out,
		"--token-file -: contains no token") {
		t.Errorf("got %d\n%s", code, out)
	}
	if code, out := m.run("", "join", "--server", hub.URL, "--token-file", m.path("none"), "--worker"); code != 1 || !strings.Contains(out,
		"reading the registration token: open") {
		t.Errorf("got %d\n%s", code, out)
	}
	// S3: a hub with a certificate of another CA gets no token, and nothing is installed.
	code, out := m.run("", "join", "--server", hub.URL, "--token", "t", "--ca-checksum", strings.Repeat("0", 64), "--worker")
	if code != 1 || !strings.Contains(out, "Warning: --token is visible to every user") || !strings.Contains(out, "nothing was installed") ||
		len(*seen) != 0 {
		t.Errorf("got %d\n%s", code, out)
	}
	if _, err := os.Lstat(m.path("usr/local/bin/system-agent")); !os.IsNotExist(err) {
		t.Error("it was installed")
	}
	// A distribution that cannot be removed keeps the agent where it is.
	m.program("stubs/rke2-uninstall.sh", "exit 5")
	if code, out := m.run("", "leave", "--yes", "--purge-distribution"); code != 1 || !strings.Contains(out,
		"rke2-uninstall.sh: exit code 5; the agent is stopped and still installed") {
		t.Errorf("got %d\n%s", code, out)
	}
}
