package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// machine is a folder that stands for a machine's root. The scripts run on it unchanged: their folders are set by the variables
// that they document, and what only a booted machine has (systemctl, sleep) is a small program in front of the real PATH, which
// writes down how it was called.
type machine struct {
	t    *testing.T
	root string
	env  []string
}

const agentBinary = "#!/bin/sh\ncase $1 in --version) echo test ;; validate-connection) grep -q kubeConfig \"$2\" ;; validate-config) ! " +
	"grep -q unusable \"$2\" && [ \"$CATTLE_LOGLEVEL\" != loud ] ;; *) exit 1 ;; esac\n"

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.stub("systemctl", `echo "systemctl $*" >>"$ROOT/calls"
case $1 in
is-system-running) echo running ;;
is-active) [ -e "$ROOT/active" ] ;;
daemon-reload) ! rm "$ROOT/reload-fails" 2>/dev/null ;;
restart) : >"$ROOT/active" ;;
stop) rm -f "$ROOT/active" ;;
esac`)
	m.stub("sleep", `echo "sleep $*" >>"$ROOT/calls"`)
	m.stub("sync", `echo sync >>"$ROOT/calls"`)
	m.stub("curl", `echo "curl $*" >>"$ROOT/argv"; exec `+realProgram(t, "curl")+` "$@"`)
	if os.Getuid() != 0 {
		m.stub("id", "echo 0")
		m.stub("chown", ":")
	}
	m.env = []string{
		"PATH=" + m.path("stubs") + ":" + os.Getenv("PATH"),
		"ROOT=" + m.root,
		"CATTLE_AGENT_CONFIG_DIR=" + m.path("etc/rancher/agent"),
		"CATTLE_AGENT_VAR_DIR=" + m.path("var/lib/agent"),
		"CATTLE_AGENT_BIN_PREFIX=" + m.path("usr/local"),
		"CATTLE_AGENT_UNIT_DIR=" + m.path("etc/systemd"),
		"CATTLE_AGENT_PACKAGE_MARKER=" + m.path("usr/lib/packaged"),
		"ARCH=amd64",
	}
	return m
}

func realProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("These tests need %s: %v", name, err)
	}
	return path
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) stub(name, body string) {
	m.t.Helper()
	m.write("stubs/"+name, "#!/bin/sh\n"+body+"\n", 0o755)
}

func (m *machine) write(name, content string, mode os.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

// read returns a file's content, and "" where there is none.
func (m *machine) read(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(m.path(name))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return string(content)
}

// installed lists what is on the machine besides the test's own helpers.
func (m *machine) installed() []string {
	m.t.Helper()
	var found []string
	err := filepath.Walk(m.root, func(path string, info os.FileInfo, err error) error {
		name := strings.TrimPrefix(path, m.root+"/")
		switch {
		case err != nil:
			return err
		case path == m.root, name == "calls", name == "argv", name == "active", name == "script.sh":
			return nil
		case name == "stubs":
			return filepath.SkipDir
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return found
}

// run runs a script under dash and returns what it printed.
func (m *machine) run(script []byte, env []string, args ...string) (output string, ok bool) {
	m.t.Helper()
	m.write("script.sh", string(script), 0o755)
	_ = os.Remove(m.path("calls"))
	cmd := exec.Command(realProgram(m.t, "dash"), append([]string{m.path("script.sh")}, args...)...)
	cmd.Env = append(append([]string{}, m.env...), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	m.t.Logf("script %v:\n%s", args, out.String())
	return out.String(), err == nil
}

// testHub is a real TLS server that answers as the gateway does, or as a test wants it to.
type testHub struct {
	*httptest.Server
	// connect answers a registration; nil answers with connection information.
	connect http.HandlerFunc
	// files are served under /assets.
	files map[string]string
	// asset answers a download, unless it returns false; nil never does.
	asset func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []*http.Request
}

const connectionInfo = `{"kubeConfig":"apiVersion: v1","namespace":"fleet-default","secretName":"plan"}`

func newTestHub(t *testing.T) *testHub {
	t.Helper()
	h := &testHub{files: map[string]string{}}
	h.publish("system-agent-amd64", agentBinary)
	h.publish("system-agent-uninstall.sh", string(UninstallScript()))
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/cacerts", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(h.ca()) })
	mux.HandleFunc("/assets/", func(w http.ResponseWriter, r *http.Request) {
		if h.asset != nil && h.asset(w, r) {
			return
		}
		content, ok := h.files[strings.TrimPrefix(r.URL.Path, "/assets/")]
		if !ok {
			http.Error(w, "no such file", http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(content))
	})
	mux.HandleFunc("/v3/connect/agent", func(w http.ResponseWriter, r *http.Request) {
		if h.connect != nil {
			h.connect(w, r)
			return
		}
		_, _ = w.Write([]byte(connectionInfo))
	})
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.requests = append(h.requests, r)
		h.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *testHub) publish(name, content string) {
	h.files[name] = content
	h.files[name+".sha256"] = digest(content) + "  " + name + "\n"
}

func (h *testHub) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// script is the install script as the gateway serves it.
func (h *testHub) script(t *testing.T) []byte {
	t.Helper()
	script, err := Script(Var{VarServer, h.URL}, Var{VarCAChecksum, digest(string(h.ca()))}, Var{VarBinaryBaseURL, h.URL + "/assets"})
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// requested returns the requests for a path.
func (h *testHub) requested(path string) []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*http.Request
	for _, r := range h.requests {
		if r.URL.Path == path {
			found = append(found, r)
		}
	}
	return found
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}
