package install

import (
	"cmp"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestDataBesideOthers: in a directory that the agent shares with others, such as the mount point of a disk, their data stay, and stay open
// to them.
func TestDataBesideOthers(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.write("mnt/data/precious", "x", 0o644)
	if err := os.Chmod(m.path("mnt/data"), 0o777); err != nil {
		t.Fatal(err)
	}
	env := []string{"CATTLE_AGENT_VAR_DIR=" + m.path("mnt/data")}
	if _, ok := m.run(hub.script(t), env, "--token", "secret", "--worker"); !ok || m.read("mnt/data/rancher2_connection_info.json") == "" {
		t.Fatal("The installation fails")
	}
	if info, err := os.Stat(m.path("mnt/data")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v (%v), want one with which others can read, and not write", info.Mode(), err)
	}
	m.write("mnt/data/state/journal", "x", 0o600)
	if out, ok := m.run(UninstallScript(), env); !ok || !strings.Contains(out, "left in place") {
		t.Errorf("uninstalling: %s", out)
	}
	for name, want := range map[string]string{"precious": "x", "state/journal": "", "rancher2_connection_info.json": ""} {
		if got := m.read("mnt/data/" + name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := os.Remove(m.path("mnt/data/precious")); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.run(UninstallScript(), env); !ok {
		t.Error("It cannot be run twice")
	}
	if _, err := os.Stat(m.path("mnt/data")); err == nil {
		t.Error("An empty directory is left")
	}
}

// TestConfigurationBesideOthers: the same for a directory of the configuration that the agent shares with others.
func TestConfigurationBesideOthers(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.write("etc/company/precious", "x", 0o644)
	if err := os.Chmod(m.path("etc/company"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"CATTLE_AGENT_CONFIG_DIR=" + m.path("etc/company")}
	if _, ok := m.run(hub.script(t), env, "--token", "secret", "--worker"); !ok || m.read("etc/company/config.yaml") == "" {
		t.Fatal("The installation fails")
	}
	if info, err := os.Stat(m.path("etc/company")); err != nil || info.Mode().Perm()&0o555 != 0o555 {
		t.Errorf("mode %v (%v), want one that lets others in", info.Mode(), err)
	}
	if out, ok := m.run(UninstallScript(), env); !ok || !strings.Contains(out, "left in place") {
		t.Errorf("uninstalling: %s", out)
	}
	left, err := os.ReadDir(m.path("etc/company"))
	if err != nil || len(left) != 1 || left[0].Name() != "precious" {
		t.Errorf("left: %v (%v), want the file of the others alone", left, err)
	}
}

// TestUninstallRemovesTheImageCache: that in a directory that the operator has configured goes, too, and nothing else of that directory.
func TestUninstallRemovesTheImageCache(t *testing.T) {
	for name, format := range map[string]string{
		"plain": "imageCacheDirectory: DIR\n", "quoted": "imageCacheDirectory: \"DIR\"\n", "with a slash": "imageCacheDirectory: DIR/ \n",
	} {
		m := newMachine(t)
		m.write("etc/rancher/agent/config.yaml", strings.ReplaceAll(format, "DIR", m.path("mnt/cache")), 0o600)
		m.write("mnt/cache/layers/sha256-1", "x", 0o600)
		m.write("mnt/cache/precious", "x", 0o600)
		if out, ok := m.run(UninstallScript(), nil); !ok {
			t.Errorf("%s: uninstalling: %s", name, out)
		}
		if _, err := os.Stat(m.path("mnt/cache/layers")); err == nil || m.read("mnt/cache/precious") != "x" {
			t.Errorf("%s: layers are there: %t, others' file is %q", name, err == nil, m.read("mnt/cache/precious"))
		}
	}
}

// TestSecondCluster: a machine of one cluster is not given to one of another namespace, whose hub cannot see that it is in use. Another hub
// may take it over.
func TestSecondCluster(t *testing.T) {
	answer := func(server, namespace string) string {
		return `{"kubeConfig":"apiVersion: v1\nclusters:\n- cluster:\n    server: ` + server + `\n  name: a\n","namespace":"` + namespace +
			`","secretName":"plan"}`
	}
	for name, tc := range map[string]struct {
		server, namespace string
		refused           bool
	}{
		"the same":          {"https://hub.example.com:8443", "fleet-a", false},
		"another namespace": {"https://hub.example.com:8443", "fleet-b", true},
		"another hub":       {"https://hub2.example.com", "fleet-b", false},
	} {
		hub, m := newTestHub(t), newMachine(t)
		given := answer("https://hub.example.com:8443", "fleet-a")
		hub.connect = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(given)) }
		if _, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
			t.Fatal("The installation fails")
		}
		first := given
		given = answer(tc.server, tc.namespace)
		out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker")
		kept := m.read("var/lib/agent/rancher2_connection_info.json") == first
		if ok == tc.refused || tc.refused != strings.Contains(out, "This machine is in a cluster of namespace fleet-a") ||
			tc.refused && !kept {
			t.Errorf("%s: success %t, kept %t: %s", name, ok, kept, out)
		}
	}
}

// unitState is a systemctl by which a unit is in a state, and all others are inactive.
func unitState(unit, state string) string {
	return `case $1 in
is-system-running) echo running ;;
is-active)
	case "$*" in *" ` + unit + `") state=` + state + ` ;; *) state=inactive ;; esac
	case $2 in --quiet) ;; *) echo "$state" ;; esac
	[ "$state" = active ]
	;;
esac`
}

// TestRunningNode: a node of a cluster that the hub does not know is not given the configuration of another cluster.
func TestRunningNode(t *testing.T) {
	for name, tc := range map[string]struct {
		unit, state, id string
		known           bool
		want            string
	}{
		"no node":            {},
		"one that starts":    {unit: "rke2-server", state: "activating", want: "run rke2-uninstall.sh first"},
		"one that is off":    {unit: "rke2-server", state: "failed"},
		"a server of k3s":    {unit: "k3s", want: "run k3s-uninstall.sh first"},
		"an agent of k3s":    {unit: "k3s-agent", want: "run k3s-agent-uninstall.sh first"},
		"a server of RKE2":   {unit: "rke2-server", want: "run rke2-uninstall.sh first"},
		"a machine of a hub": {unit: "rke2-server", known: true},
		"with its id":        {unit: "rke2-server", id: strings.Repeat("1", 63)},
		"of another program": {unit: "nginx"},
	} {
		hub, m := newTestHub(t), newMachine(t)
		m.stub("systemctl", unitState(tc.unit, cmp.Or(tc.state, "active")))
		if tc.known {
			m.write("etc/rancher/agent/cattle-id", strings.Repeat("1", 63)+"\n", 0o600)
		}
		var env []string
		if tc.id != "" {
			env = append(env, "CATTLE_ID="+tc.id)
		}
		out, ok := m.run(hub.script(t), env, "--token", "secret", "--worker")
		if ok != (tc.want == "") || !strings.Contains(out, tc.want) {
			t.Errorf("%s: success %t: %s", name, ok, out)
		}
		if asked := len(hub.requested("/v3/connect/agent")); (asked > 0) != ok {
			t.Errorf("%s: registered %d times", name, asked)
		}
	}
}

// TestServerToken: a registered machine that runs a server sends the hash of its token, by which the hub finds that of another cluster.
// What cannot be read is not sent.
func TestServerToken(t *testing.T) {
	const k3s, rke2 = "etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "etc/rancher/rke2/config.yaml.d/50-rancher.yaml"
	for name, tc := range map[string]struct{ unit, state, id, file, content, token string }{
		"no node":                         {file: k3s, content: `{"token":"a"}`},
		"a server of k3s":                 {unit: "k3s", file: k3s, content: "{\n\"agent-token\": \"b\",\n\"token\": \"a.1\"\n}", token: "a.1"},
		"a server of RKE2":                {unit: "rke2-server", file: rke2, content: `{"token": "K10ab::server:a", "x": "y"}`, token: "a"},
		"a server that does not come up":  {unit: "rke2-server", state: "activating", file: rke2, content: `{"token": "a"}`, token: "a"},
		"an agent":                        {unit: "rke2-agent", file: rke2, content: `{"token": "a"}`},
		"with its id":                     {unit: "k3s", id: strings.Repeat("1", 63), file: k3s, content: `{"token": "a"}`},
		"without a token":                 {unit: "k3s", file: k3s, content: `{"agent-token": "b"}`},
		"with an escaped character":       {unit: "k3s", file: k3s, content: `{"token": "a\u0026b"}`},
		"with a configuration of its own": {unit: "k3s", file: "etc/rancher/k3s/config.yaml", content: `{"token": "a"}`},
	} {
		hub, m := newTestHub(t), newMachine(t)
		m.stub("systemctl", unitState(tc.unit, cmp.Or(tc.state, "active")))
		m.write("etc/rancher/agent/cattle-id", strings.Repeat("1", 63)+"\n", 0o600)
		m.write(tc.file, tc.content, 0o600)
		out, ok := m.run(hub.script(t), []string{"CATTLE_ID=" + tc.id}, "--token", "secret", "--etcd")
		asked := hub.requested("/v3/connect/agent")
		if !ok || len(asked) != 1 {
			t.Fatalf("%s: registered %d times: %s", name, len(asked), out)
		}
		want := ""
		if tc.token != "" {
			want = digest(tc.token)
		}
		if got := asked[0].Header.Get("X-Cattle-Server-Token-Hash"); got != want {
			t.Errorf("%s: got the hash %q, want %q", name, got, want)
		}
	}
}

// TestUnknownLogLevel: an agent that would not start with its log level is not installed in place of the one that runs.
func TestUnknownLogLevel(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	if out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
		t.Fatalf("The script fails: %s", out)
	}
	env := m.read("etc/systemd/rancher-system-agent.env")
	out, ok := m.run(hub.script(t), []string{"CATTLE_AGENT_LOGLEVEL=loud"})
	if ok || !strings.Contains(out, "[ERROR] The configuration is invalid") {
		t.Errorf("success %t: %s", ok, out)
	}
	if got := m.read("etc/systemd/rancher-system-agent.env"); got != env || strings.Contains(m.read("calls"), "restart") {
		t.Errorf("the running agent was replaced, with the variables\n%s", got)
	}
}
