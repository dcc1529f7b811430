package clusteragent

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/agent/clusteragent"
	"github.com/drover-dev/drover/hub/access/tunnel"
)

const (
	cluster           = "c-m-test"
	registrationToken = "abcdefghij.registration"
	credential        = "credential-of-the-agent"
	accountToken      = "token-of-the-service-account"
)

// testHub is a hub of several replicas behind one address that connects agents to each in turn.
type testHub struct {
	web      *httptest.Server
	replicas []*tunnel.Manager
	next     atomic.Int64
	// exchanges counts registrations; valid is the credential that is taken.
	exchanges atomic.Int64
	valid     atomic.Pointer[string]
}

func newHub(t *testing.T, replicas int) *testHub {
	t.Helper()
	h := &testHub{}
	for i := range replicas {
		h.replicas = append(h.replicas, tunnel.New(tunnel.Options{Logger: logr.Discard(), Registerer: prometheus.NewRegistry(),
			ReplicaID: fmt.Sprintf("replica-%d", i), Replicas: func() int { return replicas },
			// No session ends where the whole process stands still for some seconds.
			Limits: tunnel.Limits{Timeout: time.Minute, SiblingTimeout: time.Minute}}))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/connect/credential", h.exchange)
	mux.HandleFunc("GET /v3/connect", h.connect)
	h.web = httptest.NewTLSServer(mux)
	t.Cleanup(h.web.Close)
	return h
}

func (h *testHub) exchange(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+registrationToken {
		http.Error(w, "the token is unknown", http.StatusUnauthorized)
		return
	}
	now := fmt.Sprintf("%s-%d", credential, h.exchanges.Add(1))
	h.valid.Store(&now)
	_ = json.NewEncoder(w).Encode(map[string]any{"cluster": cluster, "agent": "agent-x", "credential": now,
		"expiresAt": time.Now().Add(24 * time.Hour), "renewAfter": time.Now().Add(16 * time.Hour)})
}

func (h *testHub) connect(w http.ResponseWriter, r *http.Request) {
	if valid := h.valid.Load(); valid == nil || r.Header.Get("Authorization") != "Bearer "+*valid {
		http.Error(w, "the credential is revoked", http.StatusUnauthorized)
		return
	}
	replica := h.replicas[int(h.next.Add(1)-1)%len(h.replicas)]
	replica.Serve(w, r, tunnel.Agent{Key: cluster, Identity: cluster + "/agent-x"})
}

// connected is how many replicas have a session.
func (h *testHub) connected() int {
	n := 0
	for _, r := range h.replicas {
		if r.Connected(cluster) {
			n++
		}
	}
	return n
}

// client sends requests through whichever replica has a session, with pooled HTTP/1.1.
func (h *testHub) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: h.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

func (h *testHub) dial(ctx context.Context, _, _ string) (conn net.Conn, err error) {
	for _, r := range h.replicas {
		if conn, err = r.Dial(ctx, cluster, clusteragent.Network, clusteragent.Address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// get asks as a user.
func get(t *testing.T, client *http.Client, path string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube-api"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Impersonate-User", "anna")
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d: %s", response.StatusCode, raw)
	}
	return string(raw), err
}

// kubernetes is the cluster's API: one Secret, and what handler serves. It takes only requests of the agent.
func kubernetes(t *testing.T, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	secrets := &secretAPI{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+accountToken:
			http.Error(w, "who are you", http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/cattle-system/secrets"):
			secrets.ServeHTTP(w, r)
		case r.Header.Get("Impersonate-User") != "anna":
			http.Error(w, "in whose name", http.StatusForbidden)
		default:
			handler(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: accountToken, TLSClientConfig: rest.TLSClientConfig{CAData: authorities(server)}}
}

func authorities(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// start runs an agent until it is told to stop, or the test ends.
func start(t *testing.T, hub *testHub, api *rest.Config) (stop func()) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{"url": hub.web.URL, "token": registrationToken, "ca.crt": string(authorities(hub.web))} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- clusteragent.Run(ctx, clusteragent.Options{Kubernetes: api, Namespace: "cattle-system", Credentials: folder, Cluster: cluster,
			Version: "test", Log: slog.New(slog.DiscardHandler)})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the agent does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}
