package remote

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/agent/testenv/trusttest"
	"github.com/drover-dev/drover/plans"
)

// tlsHub is a hub as machines see it: with a certificate, authorities and tokens that can be exchanged while it runs.
type tlsHub struct {
	*testhub.Hub
	t      *testing.T
	server *httptest.Server

	mu          sync.Mutex
	certificate tls.Certificate
	authorities []byte
	// announce tells in answers which authorities there are, as this project's hub does.
	announce bool
	token    string
	refusal  int // instead of 401
	connect  http.HandlerFunc
	seen     map[string]int
	// foreignSince is since when the hub is not the machine's.
	foreignSince time.Time
}

// connected is the key of the time at which a connection was made.
type connected struct{}

func newTLSHub(t *testing.T, ca *trusttest.CA) *tlsHub {
	t.Helper()
	f := &tlsHub{Hub: testhub.New(t), t: t, token: "token", announce: true, seen: map[string]int{}}
	f.serve(ca, ca.PEM())
	f.server = httptest.NewUnstartedServer(f)
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return &tls.Config{Certificates: []tls.Certificate{f.certificate}}, nil
	}}
	f.server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connected{}, time.Now())
	}
	f.server.StartTLS()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// serve serves with a certificate of ca, and hands authorities out.
func (f *tlsHub) serve(ca *trusttest.CA, authorities []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.certificate, f.authorities = ca.Serve(f.t, "127.0.0.1"), authorities
}

// restart ends all connections, as a hub that restarts does.
func (f *tlsHub) restart() {
	f.EndWatches()
	f.server.CloseClientConnections()
}

func (f *tlsHub) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *tlsHub) asked(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[path]
}

func (f *tlsHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen[r.URL.Path]++
	authorities, announce, token, connect, refusal := f.authorities, f.announce, f.token, f.connect, f.refusal
	if began, _ := r.Context().Value(connected{}).(time.Time); !f.foreignSince.IsZero() && began.After(f.foreignSince) &&
		r.Header.Get("Authorization")+r.Header.Get("X-Cattle-Machine-Secret") != "" {
		f.t.Error("a credential is sent to a foreign hub")
	}
	f.mu.Unlock()
	switch r.URL.Path {
	case "/cacerts":
		if authorities == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(authorities)
		return
	case "/healthz":
		return
	case "/v3/connect/agent":
		connect(w, r)
		return
	}
	if announce {
		w.Header().Set(caChecksumHeader, plans.Checksum(authorities))
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		code := http.StatusUnauthorized
		if refusal != 0 {
			code = refusal
		}
		testhub.WriteStatus(w, code, map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden}[code],
			"who is it?")
		return
	}
	r.Header.Set("Authorization", "Bearer token")
	f.Hub.ServeHTTP(w, r)
}

// info is connection info for the hub.
func (f *tlsHub) info(token string, authorities []byte) config.Connection {
	ca := ""
	if authorities != nil {
		ca = "\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(authorities)
	}
	return config.Connection{Namespace: "fleet-default", SecretName: "plan", KubeConfig: fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: %s%s\nusers:\n- name: agent\n  user:\n    token: %s\n"+
			"contexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: agent\n", f.server.URL, ca, token)}
}

// machine is a folder with connection info and identity.
type machine struct{ dir, file string }

func newMachine(t *testing.T, connection config.Connection) machine {
	t.Helper()
	m := machine{dir: t.TempDir()}
	m.file = filepath.Join(m.dir, "rancher2_connection_info.json")
	m.write(t, connection)
	for name, text := range map[string]string{"cattle-id": "machine-1\n", "machine-secret": "0123456789abcdef0123456789abcdef\n"} {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m machine) write(t *testing.T, connection config.Connection) {
	t.Helper()
	raw, err := connection.Encode([]byte(`{"later":true}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := (host.Local{}).WriteFile(m.file, raw, fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
}

// read is the connection info as it is, under the rules for it.
func (m machine) read(t *testing.T) (connection config.Connection, authorities []byte, token string) {
	t.Helper()
	connection, raw, err := config.ReadConnection(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"later":true`) {
		t.Errorf("a key that the agent does not know is lost: %s", raw)
	}
	kubeconfig, err := clientcmd.Load([]byte(connection.KubeConfig))
	if err != nil {
		t.Fatal(err)
	}
	return connection, kubeconfig.Clusters["agent"].CertificateAuthorityData, kubeconfig.AuthInfos["agent"].Token
}

func (m machine) start(t *testing.T) *Source {
	t.Helper()
	o := options(m.file)
	o.Host, o.IdentityDirectory = host.Local{}, m.dir
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	return s
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func register(f *tlsHub, token string, more map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Drover-Stored-Identity", "accepted")
		if r.Header.Get("X-Cattle-Id") != "machine-1" || r.Header.Get("X-Cattle-Machine-Secret") != "0123456789abcdef0123456789abcdef" {
			f.t.Errorf("registers with %v", r.Header)
		}
		f.mu.Lock()
		authorities := f.authorities
		f.mu.Unlock()
		info := f.info(token, authorities)
		answer := map[string]any{"kubeConfig": info.KubeConfig, "namespace": info.Namespace, "secretName": info.SecretName}
		for key, value := range more {
			answer[key] = value
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
}
