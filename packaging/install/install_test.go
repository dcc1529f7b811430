package install

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const token = `to"ken\with$all` + "`kinds'of quotes"

// TestInstallsAndRegisters shows, besides that it works, that nobody but root can read identity, connection and what is below the data
// folder (S2, S9), and that the token is on no command line (S11).
func TestInstallsAndRegisters(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	out, ok := m.run(hub.script(t), []string{"HTTPS_PROXY=", "NO_PROXY=127.0.0.1,.svc"}, "--token", token, "--etcd", "--controlplane",
		"--worker", "--node-name", "node-1", "--label", "cattle.io/os=linux", "--label=a=b", "--taint", "k=v:NoSchedule",
		"--address", "192.0.2.7", "-i", "10.0.0.7")
	if !ok {
		t.Fatal("The script failed")
	}
	if !strings.Contains(out, "The agent is running") {
		t.Errorf("The script does not say that the agent runs")
	}

	requests := hub.requested("/v3/connect/agent")
	if len(requests) != 1 {
		t.Fatalf("%d registrations, want 1", len(requests))
	}
	got := map[string]string{}
	for name, values := range requests[0].Header {
		if strings.HasPrefix(name, "X-Cattle-") || name == "Authorization" {
			got[name] = strings.Join(values, "|")
		}
	}
	want := map[string]string{
		"Authorization":               "Bearer " + token,
		"X-Cattle-Id":                 strings.TrimSpace(m.read("etc/rancher/agent/cattle-id")),
		"X-Cattle-Machine-Secret":     strings.TrimSpace(m.read("etc/rancher/agent/machine-secret")),
		"X-Cattle-Role-Etcd":          "true",
		"X-Cattle-Role-Control-Plane": "true",
		"X-Cattle-Role-Worker":        "true",
		"X-Cattle-Node-Name":          "node-1",
		"X-Cattle-Address":            "192.0.2.7",
		"X-Cattle-Internal-Address":   "10.0.0.7",
		"X-Cattle-Labels":             "cattle.io/os=linux,a=b",
		"X-Cattle-Taints":             "k=v:NoSchedule",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers of the registration (-want +got):\n%s", diff)
	}
	if len(want["X-Cattle-Id"]) != 63 || len(want["X-Cattle-Machine-Secret"]) != 64 {
		t.Errorf("id %q and machine secret %q must have 63 and 64 digits", want["X-Cattle-Id"], want["X-Cattle-Machine-Secret"])
	}

	modes := map[string]os.FileMode{
		"usr/local/bin/system-agent":                  0o755,
		"usr/local/bin/system-agent-uninstall.sh":     0o755,
		"etc/rancher/agent":                           0o700,
		"etc/rancher/agent/cattle-id":                 0o600,
		"etc/rancher/agent/machine-secret":            0o600,
		"etc/rancher/agent/config.yaml":               0o600,
		"etc/systemd/rancher-system-agent.service":    0o644,
		"etc/systemd/rancher-system-agent.env":        0o600,
		"var/lib/agent":                               0o700,
		"var/lib/agent/rancher2_connection_info.json": 0o600,
	}
	for name, want := range modes {
		if info, err := os.Stat(m.path(name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", name, info.Mode().Perm(), want, err)
		}
	}
	if got := m.read("var/lib/agent/rancher2_connection_info.json"); got != connectionInfo {
		t.Errorf("connection information is %q", got)
	}
	if got, err := exec.Command(m.path("usr/local/bin/rancher-system-agent"), "--version").CombinedOutput(); string(got) != "test\n" {
		t.Errorf("rancher-system-agent --version: %q, %v", got, err)
	}
	if got, want := m.read("etc/systemd/rancher-system-agent.service"), string(Unit(m.path("usr/local/bin"),
		m.path("etc/systemd"))); got != want {
		t.Errorf("unit (-want +got):\n%s", cmp.Diff(want, got))
	}
	if env := m.read("etc/systemd/rancher-system-agent.env"); !strings.Contains(env, "NO_PROXY=\"127.0.0.1,.svc\"\n") ||
		!strings.Contains(env, "CATTLE_AGENT_STRICT_VERIFY=\"true\"\n") {
		t.Errorf("environment file:\n%s", env)
	}
	// Nothing is replaced or started before it is on the disk, and the identity is there before the hub hears of it.
	wantCalls := `systemctl is-system-running
systemctl is-active k3s
systemctl is-active k3s-agent
systemctl is-active rke2-server
systemctl is-active rke2-agent
sync
sync
systemctl is-active --quiet rancher-system-agent
systemctl daemon-reload
systemctl enable rancher-system-agent
sync
systemctl restart rancher-system-agent
`
	if diff := cmp.Diff(wantCalls, m.read("calls")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if argv := m.read("argv"); strings.Contains(argv, "ken") || strings.Contains(argv, want["X-Cattle-Machine-Secret"]) {
		t.Errorf("A secret is on the command line of curl:\n%s", argv)
	}
}

// TestRefuses has everything after which nothing may be left on the machine.
func TestRefuses(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	refuse := func(code int, message string) func(*testHub) {
		return func(h *testHub) {
			h.connect = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, code) }
		}
	}
	tests := []struct {
		name    string
		hub     func(*testHub)
		machine func(*machine)
		env     []string
		args    []string
		want    string
	}{
		{name: "CA checksum", args: []string{"--ca-checksum", zeros}, want: "instead of " + zeros + "; nothing was installed"},
		{name: "CA checksum from the environment wins", env: []string{"CATTLE_CA_CHECKSUM=" + zeros}, want: "instead of " + zeros},
		{name: "CA checksum too short", args: []string{"-c", "abc"}, want: "must have 64 digits, got 3"},
		{name: "CA checksum not hexadecimal", args: []string{"-c", "xyz"}, want: "must be a SHA-256 in hexadecimal"},
		{
			name: "wrong token", hub: refuse(401, "the registration token is unknown"),
			want: "The hub refuses this registration (HTTP 401): the registration token is unknown",
		},
		{name: "bad header", hub: refuse(400, "X-Cattle-Labels: no"),
			want: "The hub cannot register this machine (HTTP 400): X-Cattle-Labels: no"},
		{
			name: "escape sequences in an answer", hub: refuse(401, "a\x1b[31mb"),
			want: "(HTTP 401): a[31mb",
		},
		{
			name: "binary differs from the published checksum",
			hub:  func(h *testHub) { h.files["system-agent-amd64"] += "more" },
			want: "system-agent-amd64 has the checksum",
		},
		{name: "binary differs from the pinned checksum", env: []string{"CATTLE_AGENT_BINARY_CHECKSUM=" + zeros}, want: "instead of " + zeros},
		{name: "no binary", hub: func(h *testHub) { delete(h.files, "system-agent-amd64") }, want: "answers HTTP 404: no such file"},
		{name: "no checksum", hub: func(h *testHub) { delete(h.files, "system-agent-amd64.sha256") }, want: "answers HTTP 404: no such file"},
		{
			name: "checksum is none", hub: func(h *testHub) { h.files["system-agent-amd64.sha256"] = "<html>" },
			want: "system-agent-amd64.sha256 contains no SHA-256",
		},
		{
			name: "binary does not run", hub: func(h *testHub) { h.publish("system-agent-amd64", "#!/bin/sh\nexit 1\n") },
			want: "The agent for amd64 does not run on this machine",
		},
		{
			name: "binary that says why", hub: func(h *testHub) { h.publish("system-agent-amd64", "#!/bin/sh\necho no format\nexit 1\n") },
			want: "does not run on this machine: no format; nothing was installed",
		},
		{
			name: "binary over plain HTTP without checksum", env: []string{"CATTLE_AGENT_BINARY_URL=http://127.0.0.1:1/agent"},
			want: "is not https: pass its checksum",
		},
		{name: "no token", args: []string{"--token", ""}, want: "The registration token is missing"},
		{name: "token with a line break", args: []string{"--token", "a\nb"}, want: "An option or variable contains a control character"},
		{name: "plain HTTP", args: []string{"--server", "http://127.0.0.1"}, want: "must begin with https://"},
		{name: "unknown option", args: []string{"--colour", "red"}, want: "Option --colour is unknown"},
		{name: "option without value", args: []string{"--node-name"}, want: "Option --node-name is unknown or requires a value"},
		{name: "stray argument", args: []string{"please"}, want: "Argument please is unexpected"},
		{name: "architecture", env: []string{"ARCH=riscv64"}, want: "There is no agent for the architecture riscv64"},
		{name: "not root", machine: func(m *machine) { m.stub("id", "echo 1000") }, want: "must be run as root"},
		{name: "no systemd", machine: func(m *machine) { m.stub("systemctl", "echo offline; exit 1") }, want: "does not run systemd"},
		{name: "strict without checksum", env: []string{"CATTLE_AGENT_STRICT_VERIFY=true", "PIN="}, want: "Strict verification requires"},
		{name: "CA not trusted", env: []string{"CATTLE_AGENT_STRICT_VERIFY=false", "PIN="}, want: "is not trusted"},
		{name: "folder near the root", env: []string{"CATTLE_AGENT_VAR_DIR=/var"}, want: "at least two levels deep"},
		{name: "folder with a blank", env: []string{"CATTLE_AGENT_VAR_DIR=/var/a b"}, want: "may contain only letters"},
		{name: "bad id", env: []string{"CATTLE_ID=a/b"}, want: "may contain only letters, digits"},
		{
			name: "answer is no connection information",
			hub: func(h *testHub) {
				h.connect = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }
			},
			want: "The hub's answer is not valid connection info",
		},
		{
			name: "hub stays unavailable", env: []string{"CATTLE_AGENT_RETRY_COUNT=3"},
			hub:  func(h *testHub) { h.Config.Handler = http.HandlerFunc(unavailable) },
			want: "failed 3 times, giving up: HTTP 503: not ready",
		},
		{
			name: "no hub there", env: []string{"CATTLE_AGENT_RETRY_COUNT=2"}, args: []string{"--server", "https://127.0.0.1:1"},
			want: "failed 2 times, giving up: curl: (7)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hub, m := newTestHub(t), newMachine(t)
			if tt.hub != nil {
				tt.hub(hub)
			}
			if tt.machine != nil {
				tt.machine(m)
			}
			script := hub.script(t)
			for _, e := range tt.env {
				if e == "PIN=" {
					script, _ = Script(Var{VarServer, hub.URL})
				}
			}
			out, ok := m.run(script, tt.env, append([]string{"--token", "secret", "--all-roles"}, tt.args...)...)
			if ok {
				t.Error("The script succeeds")
			}
			last := strings.Split(strings.TrimSpace(out), "\n")
			if got := last[len(last)-1]; !strings.HasPrefix(got, "[ERROR] ") || !strings.Contains(got, tt.want) {
				t.Errorf("last line is %q, want an [ERROR] with %q", got, tt.want)
			}
			var left []string
			for _, name := range m.installed() {
				// After an answer that says the machine is registered, its identity must stay.
				if tt.name != "answer is no connection information" || !strings.HasPrefix(name, "etc") {
					left = append(left, name)
				}
			}
			if len(left) > 0 {
				t.Errorf("left on the machine: %v", left)
			}
		})
	}
}

func unavailable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not ready", http.StatusServiceUnavailable)
}

func TestNeedsARole(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	if out, ok := m.run(hub.script(t), nil, "--token", "secret"); ok || !strings.Contains(out, "This machine has no role") {
		t.Errorf("without a role: %s", out)
	}
	if _, ok := m.run(hub.script(t), []string{"CATTLE_TOKEN=secret", "CATTLE_ROLE_NONE=true"}); !ok {
		t.Error("The script fails with CATTLE_ROLE_NONE")
	}
	for name := range hub.requested("/v3/connect/agent")[0].Header {
		if strings.HasPrefix(name, "X-Cattle-Role") {
			t.Errorf("sent %s although the hub knows the roles", name)
		}
	}
}

func TestRetries(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	tries := 0
	hub.connect = func(w http.ResponseWriter, _ *http.Request) {
		switch tries++; tries {
		case 1, 2:
			unavailable(w, nil)
		case 3:
			w.Header().Set("Retry-After", "7")
			http.Error(w, "too many registrations", http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, connectionInfo)
		}
	}
	out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
	if !ok {
		t.Fatal("The script failed")
	}
	if !strings.Contains(out, "HTTP 503: not ready; retrying in 2 s (attempt 1 of 120)") {
		t.Errorf("The script does not say why it waits")
	}
	var sleeps []string
	for _, call := range strings.Split(m.read("calls"), "\n") {
		if strings.HasPrefix(call, "sleep") {
			sleeps = append(sleeps, call)
		}
	}
	if diff := cmp.Diff([]string{"sleep 2", "sleep 4", "sleep 7"}, sleeps); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// TestReplicasOfTwoVersions: while the replicas of a hub are replaced, a binary and its checksum may come from replicas of two versions.
// Nobody runs the script of a machine of an infrastructure provider a second time.
func TestReplicasOfTwoVersions(t *testing.T) {
	const binary = "/assets/system-agent-amd64"
	hub, m := newTestHub(t), newMachine(t)
	script, replica := hub.script(t), hub.Config.Handler
	hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == binary+".sha256" && len(hub.requested(binary)) < 2 {
			fmt.Fprintln(w, digest("another version")+"  system-agent-amd64")
			return
		}
		replica.ServeHTTP(w, r)
	})
	out, ok := m.run(script, nil, "--token", "secret", "--worker")
	if !ok {
		t.Fatal("The script failed")
	}
	if got := len(hub.requested(binary)); got != 2 {
		t.Errorf("the binary was downloaded %d times, want 2: the second one has the checksum of the third answer", got)
	}
	if got := strings.Count(out, "is the hub being upgraded? Requesting both again in 10 s"); got != 2 {
		t.Errorf("the script says %d times why it waits, want 2", got)
	}
	if m.read("usr/local/bin/system-agent") != agentBinary {
		t.Error("another agent is installed")
	}
}

// TestClockIsBehind: at boot the hub's certificate may not be valid yet by the clock of the machine. A curl with GnuTLS has one error for
// that and for a certificate that is not trusted.
func TestClockIsBehind(t *testing.T) {
	const openSSL = "SSL certificate problem: certificate is not yet valid"
	const gnuTLS = "server certificate verification failed. CAfile: /ca.pem CRLfile: none"
	const newGnuTLS = "SSL certificate verification failed: certificate error, no details available. (CAfile: /ca.pem CRLfile: none)"
	for _, test := range []struct {
		reason, synchronized string
		waits                bool
	}{
		{openSSL, "yes", true}, {openSSL, "no", true},
		{gnuTLS, "no", true}, {gnuTLS, "yes", false},
		{newGnuTLS, "no", true}, {newGnuTLS, "yes", false},
	} {
		hub, m := newTestHub(t), newMachine(t)
		m.stub("timedatectl", "echo "+test.synchronized)
		m.stub("curl", `case $* in */healthz)
	if [ "$(grep -c "^sleep" "$ROOT/calls")" -lt 2 ]; then
		echo "curl: (60) `+test.reason+`" >&2
		exit 60
	fi ;;
esac
exec `+realProgram(t, "curl")+` "$@"`)
		out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
		waited := strings.Count(out, test.reason+"; the clock of this machine is at ") == 2
		if ok != test.waits || waited != test.waits {
			t.Errorf("%s, synchronized %s: got %v, want %v: %s", test.reason, test.synchronized, ok, test.waits, out)
		}
	}
}

// TestEndlessAnswer has a server that nobody has verified yet, and that sends more than fits on a disk.
func TestEndlessAnswer(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	script := hub.script(t)
	sent := 0
	hub.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 64<<10); sent < 64<<20; sent += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	out, ok := m.run(script, nil, "--token", "secret", "--worker")
	if ok || !strings.Contains(out, "or the answer too large?") {
		t.Errorf("The script reads all of it: %s", out)
	}
	if left := m.installed(); len(left) > 0 {
		t.Errorf("left on the machine: %v", left)
	}
}

// TestKeepsIdentityAfterLostAnswer has the case in which the hub may know the machine already when the token expires.
func TestKeepsIdentityAfterLostAnswer(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	tries := 0
	hub.connect = func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "expired", http.StatusUnauthorized)
	}
	if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); ok {
		t.Fatal("The script succeeds")
	}
	id := m.read("etc/rancher/agent/cattle-id")
	if id == "" || m.read("etc/rancher/agent/machine-secret") == "" {
		t.Fatal("The identity is gone")
	}
	hub.connect = nil
	if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
		t.Fatal("The second run fails")
	}
	if got := m.read("etc/rancher/agent/cattle-id"); got != id {
		t.Errorf("id changed from %q to %q", id, got)
	}
}
