package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/config"
)

// hubMachine returns a machine that is registered with a hub.
func hubMachine(t *testing.T, server *httptest.Server, ca []byte) Machine {
	t.Helper()
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"agent","clusters":[{"name":"agent","cluster":{"server":%q,"certificate-authority-data":%q}}],
"users":[{"name":"agent","user":{"token":"hunter2"}}],"contexts":[{"name":"agent","context":{"cluster":"agent","user":"agent"}}]}`,
		server.URL, base64.StdEncoding.EncodeToString(ca))
	raw, err := json.Marshal(config.Connection{KubeConfig: kubeconfig, Namespace: "fleet-default", SecretName: "plan"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "connection.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	m := Machine{Config: config.Config{RemoteEnabled: true, ConnectionInfoFile: path}, ConfigFile: "/etc/rancher/agent/config.yaml",
		EnvironmentFrom: "a test"}
	m.setDefaults()
	return m
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// quietServer does not log failed handshakes.
func quietServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func verdicts(results []Result) map[string]Verdict {
	found := map[string]Verdict{}
	for _, r := range results {
		found[r.Check] = r.Verdict
	}
	return found
}

func TestHub(t *testing.T) {
	code := http.StatusOK
	server := quietServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			if r.Header.Get("Authorization") != "" {
				t.Error("the token is sent to /healthz")
			}
			return
		}
		if r.URL.Query().Get("fieldSelector") != "metadata.name=plan" || r.Header.Get("Authorization") != "Bearer hunter2" {
			t.Errorf("got %s", r.URL)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, "hunter2 is refused")
	})
	m := hubMachine(t, server, pemOf(server))
	for want, answer := range map[Verdict]int{OK: http.StatusOK, Problem: http.StatusUnauthorized, Warning: http.StatusBadGateway} {
		code = answer
		results := checkHub(t.Context(), m)
		got := verdicts(results)
		if got["hub"] != OK || got["clock"] != OK || got["pinned CA"] != OK || got["hub certificate"] != OK || got["hub credentials"] != want {
			t.Errorf("HTTP %d: got\n%s", answer, render(results))
		}
		if strings.Contains(render(results), "hunter2") {
			t.Errorf("the token is shown:\n%s", render(results))
		}
	}

	m.Now = func() time.Time { return time.Now().Add(time.Hour) }
	if got := verdicts(checkHub(t.Context(), m)); got["clock"] != Problem {
		t.Errorf("a clock that is an hour ahead: %v", got)
	}
	m.Now = time.Now
	server.Close()
	results := checkHub(t.Context(), m)
	if got := render(results); !strings.Contains(got, "problem hub: "+server.URL) || !strings.Contains(got, "connection refused") {
		t.Errorf("got %s", got)
	}
}

// The token is not sent to a server of another CA, and the advice is not to trust that CA.
func TestHubOfAnotherCA(t *testing.T) {
	asked := false
	server := quietServer(t, func(http.ResponseWriter, *http.Request) { asked = true })
	results := checkHub(t.Context(), hubMachine(t, server, otherCA(t)))
	if got := render(results); asked || !strings.Contains(got, "problem hub: ") || !strings.Contains(results[len(results)-1].Advice,
		"not signed by the CA that this machine has pinned") {
		t.Errorf("asked %v, got %s", asked, got)
	}
}

// otherCA returns the certificate of another CA.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func TestExpiry(t *testing.T) {
	server := quietServer(t, func(http.ResponseWriter, *http.Request) {})
	certificate := server.Certificate()
	for want, now := range map[Verdict]time.Time{
		OK: certificate.NotAfter.Add(-60 * 24 * time.Hour), Warning: certificate.NotAfter.Add(-24 * time.Hour),
		Problem: certificate.NotAfter.Add(time.Hour),
	} {
		if got := expiry("x", certificate, now, "y"); got.Verdict != want {
			t.Errorf("at %s: %+v", now, got)
		}
	}
	if got := expiry("x", certificate, certificate.NotBefore.Add(-time.Hour), "y"); got.Verdict != Problem || !strings.Contains(got.Advice,
		"clock") {
		t.Errorf("got %+v", got)
	}
	if got := render([]Result{pinnedCA(nil, time.Now())}); !strings.HasPrefix(got, "warning pinned CA: none") {
		t.Error(got)
	}
}

func TestSkew(t *testing.T) {
	started := time.Date(2026, 11, 21, 3, 0, 0, 500, time.UTC)
	for offset, want := range map[time.Duration]string{
		0:                 "ok clock: within 1s of the hub's clock",
		20 * time.Second:  "ok clock: within 20s of the hub's clock",
		time.Hour:         "problem clock: 1h0m0s behind the hub's clock",
		-10 * time.Minute: "problem clock: 9m59s ahead of the hub's clock",
	} {
		date := started.Add(offset).UTC().Format(http.TimeFormat)
		if got := render([]Result{clockSkew(date, started, started.Add(time.Millisecond))}); got != want {
			t.Errorf("%s: got %s", offset, got)
		}
	}
	if got := clockSkew("yesterday", started, started); got.Verdict != Skipped {
		t.Errorf("got %+v", got)
	}
}

func TestProxy(t *testing.T) {
	tests := map[string]struct{ env, want string }{
		"none": {"PATH=/bin", "ok proxy: none configured (a test)"},
		"fine": {"HTTPS_PROXY=http://user:hunter2@proxy:3128 NO_PROXY=127.0.0.0/8,.svc,10.0.0.1",
			"ok proxy HTTPS_PROXY: http://hidden@proxy:3128"},
		"bad proxy": {"HTTP_PROXY=hunter2@proxy:x", "problem proxy HTTP_PROXY: not a URL such as http://proxy.example.com:3128"},
		"bad range": {"https_proxy=http://proxy:3128 no_proxy=10.0.0.0/33",
			"ok proxy HTTPS_PROXY: http://proxy:3128\nproblem proxy NO_PROXY: entry \"10.0.0.0/33\" is not a network such as 10.0.0.0/8"},
		"URL": {"https_proxy=http://proxy:3128 no_proxy=https://hub",
			"ok proxy HTTPS_PROXY: http://proxy:3128\nproblem proxy NO_PROXY: entry \"https://hub\" is a URL; use a name, an address or a network"},
		"brackets": {"https_proxy=http://proxy:3128 no_proxy=[fd00::1],[fd00::2]:8443,fd00::3,fd01::/16",
			"ok proxy HTTPS_PROXY: http://proxy:3128\nproblem proxy NO_PROXY: entry \"[fd00::1]\" has brackets, which only an address with a " +
				"port has; use fd00::1"},
		"star": {"https_proxy=http://proxy:3128 no_proxy=10.*,*.svc,*",
			"ok proxy HTTPS_PROXY: http://proxy:3128\nproblem proxy NO_PROXY: entry \"10.*\" has a * in the middle; .example.com matches all " +
				"subdomains"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Environment: strings.Fields(test.env), EnvironmentFrom: "a test"}
			if got := render(checkProxy(t.Context(), m)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// The hub is contacted through the agent's proxy, not through that of the shell.
func TestHubThroughProxy(t *testing.T) {
	server := quietServer(t, func(http.ResponseWriter, *http.Request) {})
	tunnels := make(chan string, 4)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	m := hubMachine(t, server, pemOf(server))
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := strings.ReplaceAll(readFile(t, m.Config.ConnectionInfoFile), u.Host, "hub.example.com:"+u.Port())
	if err := os.WriteFile(m.Config.ConnectionInfoFile, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Environment = []string{"HTTPS_PROXY=" + proxy.URL}
	m.LookupHost = func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	if got := verdicts(checkHub(t.Context(), m)); got["hub"] != Problem {
		t.Errorf("got %v", got)
	}
	if got := <-tunnels; got != "CONNECT hub.example.com:"+u.Port() {
		t.Errorf("got %s", got)
	}
	if got := render(checkProxy(t.Context(), m)); !strings.Contains(got, "ok proxy for the hub: through 127.0.0.1:") {
		t.Errorf("got %s", got)
	}
	m.Environment = []string{"HTTPS_PROXY=https://proxy.example.com:3129"}
	if got := render(checkProxy(t.Context(), m)); !strings.Contains(got, "warning proxy for the hub: through proxy.example.com:3129, ") {
		t.Errorf("got %s", got)
	}
	m.Environment = []string{"HTTPS_PROXY=" + proxy.URL}
	// A name that only the proxy resolves is not a problem.
	if got := render(checkDNS(t.Context(), m)); got != "warning DNS hub.example.com: hub: no such host" {
		t.Errorf("got %s", got)
	}
	m.Environment = nil
	if got := render(checkDNS(t.Context(), m)); got != "problem DNS hub.example.com: hub: no such host" {
		t.Errorf("got %s", got)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A listener of this process is found in /proc.
func TestPorts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	number := listener.Addr().(*net.TCPAddr).Port
	comm := strings.TrimSpace(readFile(t, "/proc/self/comm"))
	previous := ports
	defer func() { ports = previous }()
	ports = []port{{number, "test", true}}

	m := Machine{role: roleServer}
	if got := render(checkPorts(t.Context(), m)); got != fmt.Sprintf("problem port %d (test): used by %s, PID %d", number, comm, os.Getpid()) {
		t.Errorf("got %s", got)
	}
	m.role = roleUnknown
	if got := checkPorts(t.Context(), m)[0]; got.Verdict != Warning {
		t.Errorf("got %+v", got)
	}
	m.role = roleWorker
	if got := checkPorts(t.Context(), m); len(got) != 0 {
		t.Errorf("ports of servers are checked on a worker: %+v", got)
	}
	previousPrograms := distributionPrograms
	defer func() { distributionPrograms = previousPrograms }()
	distributionPrograms = []string{comm}
	m.role = roleServer
	if got := checkPorts(t.Context(), m)[0]; got.Verdict != OK {
		t.Errorf("got %+v", got)
	}
	listener.Close()
	if got := render(checkPorts(t.Context(), m)); got != fmt.Sprintf("ok ports: free: %d", number) {
		t.Errorf("got %s", got)
	}
}

// TestPortOfTheHub: on the machine of the hub, its API server has the port of that of k3s and RKE2.
func TestPortOfTheHub(t *testing.T) {
	m := Machine{role: roleServer, Root: tree(t, map[string]string{
		"proc/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
			"   0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 4711 1 0000000000000000 100 0 0 10 0\n",
		"proc/77/comm": "hub\n", "proc/77/fd/3": "-> socket:[4711]",
	})}
	got := checkPorts(t.Context(), m)[0]
	if got.Verdict != Problem || got.Check != "port 6443 (Kubernetes API)" || got.Message != "used by hub, PID 77" ||
		!strings.Contains(got.Advice, "--api-port 7443") {
		t.Errorf("got %+v", got)
	}
}
