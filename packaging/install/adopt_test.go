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

// original lays a machine out as the script of rancher-system-agent does.
func original(m *machine) {
	m.write("usr/local/bin/rancher-system-agent", "#!/bin/sh\nexit 1\n", 0o755)
	m.write("usr/local/bin/rancher-system-agent-uninstall.sh", "#!/bin/sh\nexit 1\n", 0o755)
	m.write("etc/rancher/agent/cattle-id", strings.Repeat("1", 63)+"\n", 0o600)
	m.write("etc/rancher/agent/config.yaml",
		fmt.Sprintf("workDirectory: %[1]s/work\nappliedPlanDirectory: %[1]s/applied\nremoteEnabled: true\n"+
			"localEnabled: true\nlocalPlanDirectory: %[1]s/my-plans\ninterlockDirectory: %[1]s/interlock\npreserveWorkDirectory: true\n"+
			"connectionInfoFile: %[1]s/rancher2_connection_info.json\nagentRegistriesFile: /etc/my-registries.yaml\nsomethingNew: "+
			"7\n", m.path("srv/agent")), 0o600)
	m.write("srv/agent/rancher2_connection_info.json", connectionInfo, 0o600)
	m.write("etc/systemd/rancher-system-agent.service", "[Service]\nType=simple\nEnvironment=CATTLE_LOGLEVEL=debug\n"+
		"Environment=CATTLE_AGENT_CONFIG="+m.path("etc/rancher/agent/config.yaml")+"\nEnvironment=CATTLE_AGENT_STRICT_VERIFY=true\n"+
		"ExecStart="+m.path("usr/local/bin/rancher-system-agent")+" sentinel\n", 0o644)
	m.write("etc/systemd/rancher-system-agent.env",
		"HTTP_PROXY=http://proxy:3128/?a=b\nNO_PROXY=10.0.0.0/8 .svc,,\t127.0.0.1\nMY_VAR=a=b \"c\"\n", 0o600)
	m.write("active", "", 0o600)
	// The folders are found, not told.
	var env []string
	for _, e := range m.env {
		if !strings.HasPrefix(e, "CATTLE_AGENT") || strings.HasPrefix(e, "CATTLE_AGENT_UNIT_DIR") {
			env = append(env, e)
		}
	}
	m.env = env
}

// TestTakesOver has a machine on which rancher-system-agent runs, and a caller that tells nothing that the machine knows.
func TestTakesOver(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	original(m)
	script, err := Script(Var{VarServer, hub.URL}, Var{VarCAChecksum, digest(string(hub.ca()))})
	if err != nil {
		t.Fatal(err)
	}
	out, ok := m.run(script, nil)
	if !ok || !strings.Contains(out, "keeping the connection in "+m.path("srv/agent/rancher2_connection_info.json")) {
		t.Fatal("The script fails or says nothing")
	}
	if n := len(hub.requested("/v3/connect/agent")); n != 0 {
		t.Errorf("%d registrations without a token", n)
	}
	want := fmt.Sprintf("workDirectory: %[1]s/work\nappliedPlanDirectory: %[1]s/applied\ninterlockDirectory: %[1]s/interlock\n"+
		"preserveWorkDirectory: true\nlocalEnabled: true\nlocalPlanDirectory: %[1]s/my-plans\nremoteEnabled: true\n"+
		"connectionInfoFile: %[1]s/rancher2_connection_info.json\nagentRegistriesFile: \"/etc/my-registries.yaml\"\nsomethingNew: "+
		"7\n", m.path("srv/agent"))
	if diff := cmp.Diff(want, m.read("etc/rancher/agent/config.yaml")); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	want = fmt.Sprintf("CATTLE_LOGLEVEL=\"debug\"\nCATTLE_AGENT_CONFIG=\"%[1]s/etc/rancher/agent/config.yaml\"\n"+
		"CATTLE_AGENT_STRICT_VERIFY=\"true\"\n"+
		"CATTLE_AGENT_CONFIG_DIR=\"%[1]s/etc/rancher/agent\"\nCATTLE_AGENT_VAR_DIR=\"%[1]s/srv/agent\"\n"+
		"CATTLE_AGENT_BIN_PREFIX=\"%[1]s/usr/local\"\n"+
		"HTTP_PROXY=\"http://proxy:3128/?a=b\"\nNO_PROXY=\"10.0.0.0/8,.svc,127.0.0.1\"\n", m.root)
	env := m.read("etc/systemd/rancher-system-agent.env")
	if !strings.HasPrefix(env, want) || !strings.HasSuffix(env, "\nMY_VAR=a=b \"c\"\n") {
		t.Errorf("environment file:\n%s\nwant the beginning:\n%s", env, want)
	}
	for name, want := range map[string]string{
		"etc/rancher/agent/cattle-id":             strings.Repeat("1", 63) + "\n",
		"srv/agent/rancher2_connection_info.json": connectionInfo,
		"usr/local/bin/system-agent":              agentBinary,
		"usr/local/bin/rancher-system-agent":      "#!/bin/sh\nexec " + m.path("usr/local/bin/system-agent") + " \"$@\"\n",
	} {
		if got := m.read(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if calls := m.read("calls"); strings.Contains(calls, " stop ") || !strings.Contains(calls, "systemctl restart rancher-system-agent\n") {
		t.Errorf("The running agent is stopped before the new one is in place:\n%s", calls)
	}

	t.Run("again", func(t *testing.T) {
		if out, ok := m.run(script, nil); !ok || !strings.Contains(out, "nothing changed") {
			t.Errorf("The second run changes something: %s", out)
		}
	})
	t.Run("the caller wins", func(t *testing.T) {
		_, ok := m.run(script, []string{"HTTP_PROXY=", "CATTLE_LOCAL_ENABLED=false", "CATTLE_AGENT_LOGLEVEL=warn",
			"CATTLE_PRESERVE_WORKDIR=false",
			"CATTLE_AGENT_PLAN_SIGNATURES=enforce", "CATTLE_AGENT_METRICS_ADDRESS=127.0.0.1:9099"})
		config, env := m.read("etc/rancher/agent/config.yaml"), m.read("etc/systemd/rancher-system-agent.env")
		for _, line := range []string{"localEnabled: false\n", "preserveWorkDirectory: false\n", "planSignatures: \"enforce\"\n",
			"metricsAddress: \"127.0.0.1:9099\"\n"} {
			if !ok || !strings.Contains(config, line) {
				t.Errorf("the configuration lacks %q:\n%s", line, config)
			}
		}
		if strings.Contains(env, "HTTP_PROXY") || !strings.Contains(env, "CATTLE_LOGLEVEL=\"warn\"") {
			t.Errorf("environment file:\n%s", env)
		}
		_, ok = m.run(script, []string{"CATTLE_AGENT_METRICS_ADDRESS="})
		config = m.read("etc/rancher/agent/config.yaml")
		if !ok || strings.Contains(config, "metricsAddress") || !strings.Contains(config, "planSignatures: \"enforce\"\n") {
			t.Errorf("after the address is taken away:\n%s", config)
		}
	})
	t.Run("uninstall", func(t *testing.T) {
		// An upgrade of the agent that was not committed yet.
		m.write("usr/local/bin/system-agent-versions/0123", agentBinary, 0o755)
		for _, unit := range []string{"rancher-system-agent-rollback.service", "rancher-system-agent-rollback.timer",
			"timers.target.wants/rancher-system-agent-rollback.timer"} {
			m.write("etc/systemd/"+unit, "[Unit]\n", 0o644)
		}
		if _, ok := m.run(UninstallScript(), nil); !ok {
			t.Error("The script fails")
		}
		if calls := m.read("calls"); !strings.Contains(calls, "systemctl stop rancher-system-agent-rollback.timer\n") {
			t.Errorf("The timer is not stopped:\n%s", calls)
		}
		for _, name := range m.installed() {
			if info, err := os.Lstat(m.path(name)); err != nil || !info.IsDir() {
				t.Errorf("left: %s", name)
			}
		}
	})
}

// TestUninstallsTheOriginal has an installation that wrote down nothing about where it is.
func TestUninstallsTheOriginal(t *testing.T) {
	m := newMachine(t)
	original(m)
	m.env = append(m.env, "CATTLE_AGENT_CONFIG_DIR="+m.path("etc/rancher/agent"))
	if _, ok := m.run(UninstallScript(), nil); !ok {
		t.Error("The script fails")
	}
	for _, name := range m.installed() {
		if info, err := os.Lstat(m.path(name)); err != nil || !info.IsDir() {
			t.Errorf("left: %s", name)
		}
	}
}

// TestRefusedAgain has a machine that registered without a secret, so that the hub cannot know that it is the same.
func TestRefusedAgain(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	original(m)
	hub.connect = func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "registered without a secret", http.StatusUnauthorized)
	}
	out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
	if !ok || !strings.Contains(out, "keeping its connection") {
		t.Fatalf("The script fails: %s", out)
	}
	if got := m.read("srv/agent/rancher2_connection_info.json"); got != connectionInfo {
		t.Errorf("connection is %q", got)
	}
	if m.read("etc/rancher/agent/machine-secret") != "" {
		t.Error("A secret that the hub does not know is left")
	}
}

func TestRefusesToTakeOver(t *testing.T) {
	tests := map[string]struct {
		change func(m *machine)
		env    []string
		want   string
	}{
		"connection is broken": {
			change: func(m *machine) { m.write("srv/agent/rancher2_connection_info.json", "{}", 0o600) }, want: "is invalid: ; pass --token",
		},
		"configuration is broken": {
			change: func(m *machine) {
				m.write("etc/rancher/agent/config.yaml", m.read("etc/rancher/agent/config.yaml")+"unusable: x\n", 0o600)
			},
			want: "The configuration is invalid",
		},
		"signatures": {env: []string{"CATTLE_AGENT_PLAN_SIGNATURES=maybe"}, want: "must be off, warn or enforce, got maybe"},
		"nowhere":    {env: []string{"SERVER="}, want: "No source for the agent"},
		"local and pinned": {env: []string{"CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION=/dev/null",
			"CATTLE_AGENT_BINARY_CHECKSUM=ab"},
			want: "instead of ab; nothing was installed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			hub, m := newTestHub(t), newMachine(t)
			original(m)
			if test.change != nil {
				test.change(m)
			}
			script := hub.script(t)
			if len(test.env) > 0 && test.env[0] == "SERVER=" {
				script, _ = Script()
			}
			before := m.read("etc/rancher/agent/config.yaml")
			out, ok := m.run(script, test.env)
			if ok || !strings.Contains(out, test.want) {
				t.Errorf("want %q: %s", test.want, out)
			}
			if m.read("etc/rancher/agent/config.yaml") != before || strings.Contains(m.read("calls"), "restart") ||
				m.read("usr/local/bin/system-agent") != "" {
				t.Error("The machine was touched")
			}
		})
	}
}

// TestUpgradeFromFiles needs no hub at all.
func TestUpgradeFromFiles(t *testing.T) {
	m := newMachine(t)
	original(m)
	m.write("media/agent", agentBinary, 0o644)
	m.write("media/uninstall", string(UninstallScript()), 0o644)
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	_, ok := m.run(script, []string{"CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION=" + m.path("media/agent"),
		"CATTLE_AGENT_UNINSTALL_LOCAL=true", "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION=" + m.path("media/uninstall"),
		"CATTLE_AGENT_BINARY_CHECKSUM=" + strings.ToUpper(digest(agentBinary))})
	if !ok || m.read("usr/local/bin/system-agent") != agentBinary || m.read("argv") != "" {
		t.Errorf("the agent is not there, or something was downloaded: %s", m.read("argv"))
	}
}

// eval runs some lines of shell with the functions of the script.
func eval(t *testing.T, m *machine, env []string, lines string) string {
	t.Helper()
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	functions, _, found := strings.Cut(string(script), "\nmain \"$@\"")
	if !found {
		t.Fatal("The script does not end as expected")
	}
	cmd := exec.Command(realProgram(t, "dash"), "-c", functions+"\n"+lines)
	cmd.Env = append([]string{"PATH=" + m.path("stubs") + ":" + os.Getenv("PATH"), "ROOT=" + m.root, "CATTLE_AGENT_UNIT_DIR=" +
		m.path("etc/systemd")}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestFolders(t *testing.T) {
	mountpoint := func(m *machine) { m.stub("mountpoint", `[ "$2" = /usr/local ]`) }
	tests := map[string]struct {
		machine func(m *machine)
		env     []string
		want    string
	}{
		"usual":                       {want: "/etc/rancher/agent /var/lib/rancher/agent /usr/local"},
		"/usr/local is a file system": {machine: mountpoint, want: "/etc/rancher/agent /var/lib/rancher/agent /opt/rancher-system-agent"},
		"the same, and a prefix": {machine: mountpoint, env: []string{"CATTLE_AGENT_BIN_PREFIX=/srv/x"},
			want: "/etc/rancher/agent /var/lib/rancher/agent /srv/x"},
		"in a transaction": {machine: func(m *machine) { m.stub("transactional-update", ""); mountpoint(m) },
			want: "/etc/rancher/agent /etc/rancher/agent/var /usr"},
		"in a transaction, and a folder": {machine: func(m *machine) { m.stub("transactional-update", "") },
			env:  []string{"CATTLE_AGENT_VAR_DIR=/srv/v"},
			want: "/etc/rancher/agent /srv/v /usr"},
		"as the unit says": {
			machine: func(m *machine) {
				m.write("etc/systemd/rancher-system-agent.service", "ExecStart=/opt/rancher-system-agent/bin/rancher-system-agent sentinel\n", 0o644)
			},
			want: "/etc/rancher/agent /var/lib/rancher/agent /opt/rancher-system-agent",
		},
		"as the environment file says": {
			machine: func(m *machine) {
				m.write("etc/systemd/rancher-system-agent.env",
					"CATTLE_AGENT_CONFIG=\"/srv/c/config.yaml\"\nCATTLE_AGENT_VAR_DIR=\"/srv/v\"\nCATTLE_AGENT_BIN_PREFIX=\"/srv/p\"\n", 0o600)
			},
			want: "/srv/c /srv/v /srv/p",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.stub("mountpoint", "exit 1")
			if test.machine != nil {
				test.machine(m)
			}
			got := eval(t, m, test.env, `read_environment; find_installation; echo "$config_dir $var_dir $prefix"`)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestExceptions has lists as operators write them; none may end the script.
func TestExceptions(t *testing.T) {
	tests := map[string]struct {
		list, host string
		want       string
	}{
		"network":           {"10.0.0.0/8,.svc", "10.1.2.3", "direct"},
		"other network":     {"10.0.0.0/8", "11.1.2.3", ""},
		"blanks":            {" 127.0.0.1  10.0.0.0/8\n.svc ", "10.1.2.3", "direct"},
		"one address":       {"192.0.2.7/32", "192.0.2.7", "direct"},
		"its neighbour":     {"192.0.2.7/32", "192.0.2.6", ""},
		"everything":        {"0.0.0.0/0", "8.8.8.8", "direct"},
		"name":              {"10.0.0.0/8", "hub.example.com", ""},
		"looks like one":    {"10.0.0.0/8", "10.example.com", ""},
		"no numbers":        {"a/b,10.0.0.0/x,10.0.0.0/", "10.1.2.3", ""},
		"numbers too large": {"999.0.0.0/8,10.0.0.0/99,10.0.0.0/08", "10.1.2.3", ""},
		"IPv6":              {"fd00::/8", "fd00::1", ""},
		"shell":             {"$(touch $ROOT/x)/8,`id`/8,*", "10.1.2.3", ""},
		"nothing":           {"", "10.1.2.3", ""},
		"only commas":       {",, ,", "10.1.2.3", ""},
		"after nonsense":    {"1.2.3/4, 10.0.0.0/33, 10.0.0.0/8", "10.1.2.3", "direct"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			got := eval(t, m, []string{"NO_PROXY=" + test.list, "HOST=" + test.host},
				`read_environment; find_installation; set_proxies; if excepted "$HOST"; then echo direct; fi`)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if m.read("x") != "" {
				t.Error("Something of the list was run")
			}
		})
	}
}

func TestHostOf(t *testing.T) {
	for url, want := range map[string]string{
		"https://hub.example.com/a:b": "hub.example.com", "https://10.0.0.1:8443": "10.0.0.1", "https://[fd00::1]:8443/x": "fd00::1",
		"https://user:secret@hub:1/": "hub",
	} {
		if got := eval(t, newMachine(t), []string{"URL=" + url}, `host_of "$URL"`); got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

// TestAroundTheProxy has a proxy that nobody answers at, and an exception that old versions of curl do not understand.
func TestAroundTheProxy(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.stub("restorecon", `echo "restorecon $*" >>"$ROOT/calls"`)
	proxies := []string{"HTTPS_PROXY=http://127.0.0.1:1", "CATTLE_AGENT_RETRY_COUNT=1"}
	if out, ok := m.run(hub.script(t), proxies, "--token", "secret", "--worker"); ok || !strings.Contains(out, "127.0.0.1 port 1 ") {
		t.Errorf("The proxy is not used: %s", out)
	}
	if _, ok := m.run(hub.script(t), append(proxies, "NO_PROXY=.svc 127.0.0.0/8"), "--token", "secret", "--worker"); !ok {
		t.Error("The exception is not used")
	}
	if argv := m.read("argv"); !strings.Contains(argv, "--noproxy 127.0.0.1 ") {
		t.Errorf("curl is left alone with the network:\n%s", argv)
	}
	for _, name := range []string{"usr/local/bin/system-agent", "etc/systemd/rancher-system-agent.service", "etc/rancher/agent/config.yaml"} {
		if !strings.Contains(m.read("calls"), "restorecon -F "+m.path(name)+"\n") {
			t.Errorf("%s keeps a wrong SELinux label", name)
		}
	}
}

// TestInATransaction has a system whose next state is being made: nothing runs in it yet, so nothing is started.
func TestInATransaction(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.stub("transactional-update", "")
	m.stub("systemctl", `echo "systemctl $*" >>"$ROOT/calls"; case $1 in is-system-running) echo offline; exit 1 ;; is-active) exit 3 ;; esac`)
	out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
	if !ok || !strings.Contains(out, "it starts when the machine boots into this transaction") {
		t.Errorf("The script fails or says nothing: %s", out)
	}
	calls := m.read("calls")
	if !strings.Contains(calls, "systemctl enable rancher-system-agent\n") || strings.Contains(calls, "restart") ||
		strings.Contains(calls, "daemon-reload") {
		t.Errorf("calls:\n%s", calls)
	}
	if m.read("usr/local/bin/system-agent") != agentBinary {
		t.Error("The agent is not there")
	}
	if _, err := os.Stat(m.path("etc/rancher/agent/install-pending")); err == nil {
		t.Error("The installation counts as interrupted")
	}
}

func TestConfigurationOfAnotherForm(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	odd := `{"remoteEnabled": true, "workDirectory": "/srv/x/work"}`
	m.write("etc/rancher/agent/config.yaml", odd, 0o600)
	out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
	if !ok || !strings.Contains(out, "is kept as") {
		t.Errorf("The script fails or says nothing: %s", out)
	}
	if got := m.read("etc/rancher/agent/config.yaml.before"); got != odd {
		t.Errorf("kept is %q", got)
	}
	if got := m.read("etc/rancher/agent/config.yaml"); !strings.Contains(got, "workDirectory: "+m.path("var/lib/agent/work")+"\n") {
		t.Errorf("configuration:\n%s", got)
	}
}
