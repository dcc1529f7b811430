package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// envNodePath replaces nodePath in processes that tests start.
const envNodePath = "TEST_NODE_PATH"

func init() {
	if path := os.Getenv(envNodePath); path != "" {
		// The agent that is installed is the binary of the tests.
		nodePath, passed = path, append(passed, envAgent)
	}
}

// cluster is an API server with one Node; it returns a kubeconfig for it.
func cluster(t *testing.T, labels string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "n1" || r.Header.Get("Authorization") != "Bearer of-the-pod" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","message":"nodes \"n2\" is forbidden"}`)
			return
		}
		fmt.Fprintf(w, `{"kind":"Node","metadata":{"name":"n1","labels":{%s}}}`, labels)
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: u, user: {token: of-the-pod}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server.URL, base64.StdEncoding.EncodeToString(caOf(server)))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The root directory of the node is that of this machine; agent/host/run tests other ones.
func TestUpgradeNode(t *testing.T) {
	present, _ := filepath.Glob("/run/rancher-system-agent-upgrade-*")
	m := newInstallable(t)
	hub, seen := joinHub(t)
	sum := sha256.Sum256(caOf(hub))
	for name, value := range map[string]string{
		"CATTLE_SERVER": hub.URL, "CATTLE_TOKEN": "hunter2-token", "CATTLE_CA_CHECKSUM": hex.EncodeToString(sum[:]),
		envNodeName: "n1", envNodePath: os.Getenv("PATH"),
		"CATTLE_ROLE_WORKER": "true", "SECRET_OF_THE_POD": "x",
	} {
		t.Setenv(name, value)
	}
	labels := `"node-role.kubernetes.io/etcd":"true","node-role.kubernetes.io/control-plane":"true","node-role.kubernetes.io/worker":"false"`
	code, out := m.run("", "upgrade-node", "--host-root", "/", "--kubeconfig", cluster(t, labels))
	if code != 0 || !strings.Contains(out, "Starting the service") || strings.Contains(out, "hunter2-token") {
		t.Fatalf("got %d\n%s", code, out)
	}
	for header, want := range map[string]string{"Authorization": "Bearer hunter2-token", "X-Cattle-Node-Name": "n1",
		"X-Cattle-Role-Etcd": "true", "X-Cattle-Role-Control-Plane": "true", "X-Cattle-Role-Worker": ""} {
		if got := seen.Get(header); got != want {
			t.Errorf("%s is %q, not %q", header, got, want)
		}
	}
	if m.read("usr/local/bin/system-agent") == "" || !strings.Contains(m.read("calls"), "systemctl enable") {
		t.Errorf("nothing was installed; systemctl was called with\n%s", m.read("calls"))
	}
	if left := leftIn("/run/rancher-system-agent-upgrade-*", present); len(left) > 0 {
		t.Errorf("files are left: %s", left)
	}

	// Without a token the connection is kept, and nothing changes.
	t.Setenv("CATTLE_TOKEN", "")
	*seen = nil
	if code, out := m.run("", "upgrade-node", "--host-root", "/", "--kubeconfig", cluster(t, labels)); code != 0 || *seen != nil ||
		!strings.Contains(out, "keeping the connection") {
		t.Errorf("again: %d, %v\n%s", code, *seen, out)
	}
	t.Setenv(envUninstall, "true")
	if code, out := m.run("", "upgrade-node", "--host-root", "/"); code != 0 || m.read("usr/local/bin/system-agent") != "" {
		t.Errorf("uninstalling: %d\n%s", code, out)
	}
}

func TestUpgradeNodeErrors(t *testing.T) {
	m := newInstallable(t)
	for _, test := range []struct{ node, want string }{
		{"", "SYSTEM_UPGRADE_NODE_NAME must be the name of the node; the system-upgrade-controller sets it"},
		{"n2", `reading the roles of Node n2: the API server answers HTTP 403: nodes "n2" is forbidden`},
	} {
		t.Setenv(envNodeName, test.node)
		if code, out := m.run("", "upgrade-node", "--host-root", "/", "--kubeconfig", cluster(t, "")); code != exitError ||
			!strings.Contains(out, test.want) {
			t.Errorf("got %d %q, want %q", code, out, test.want)
		}
	}
	if code, out := m.run("", "upgrade-node", "--host-root", m.path("none")); code != exitError ||
		!strings.Contains(out, "mount the root directory of the node at "+m.path("none")) {
		t.Errorf("without a root: %d %q", code, out)
	}
}

func TestRegistrationEnvironment(t *testing.T) {
	t.Setenv(envNodeName, "n1")
	all := []string{"PATH=/opt/drover", "CATTLE_SERVER=https://hub", "CATTLE_ROLE_WORKER=true", "KUBERNETES_PORT=1", "https_proxy=", "DEBUG=1"}
	kept := []string{"PATH=" + nodePath, "HOME=/root", "CATTLE_SERVER=https://hub"}
	rest := []string{"https_proxy=", "DEBUG=1", "CATTLE_NODE_NAME=n1"}
	for name, test := range map[string]struct {
		labels, none string
		want         []string
	}{
		"roles of the Node":    {`"node-role.kubernetes.io/controlplane":"true"`, "", append(rest, "CATTLE_ROLE_CONTROLPLANE=true")},
		"Node without roles":   {`"a":"b"`, "", append([]string{"CATTLE_ROLE_WORKER=true"}, rest...)},
		"roles are the hub's":  {`"node-role.kubernetes.io/etcd":"true"`, "true", append([]string{"CATTLE_ROLE_WORKER=true"}, rest...)},
		"worker by its labels": {`"node-role.kubernetes.io/worker":"true"`, "", append(rest, "CATTLE_ROLE_WORKER=true")},
	} {
		t.Setenv(envRoleNone, test.none)
		got, err := registrationEnvironment(t.Context(), nodeEnvironment(all), cluster(t, test.labels))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append(append([]string{}, kept...), test.want...), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
