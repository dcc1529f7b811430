package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rancher/remotedialer"

	"github.com/drover-dev/drover/agent/config"
)

func TestNodeTunnel(t *testing.T) {
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer kubelet.Close()
	library := remotedialer.New(func(r *http.Request) (string, bool, error) {
		return "c-m-test:machine", r.Header.Get("Authorization") == "Bearer plan-token" && r.Header.Get("X-Drover-Agent") == "node/"+Version, nil
	}, remotedialer.DefaultErrorWriter)
	hub := httptest.NewTLSServer(library)
	defer hub.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw}))
	file := connectionFile(t, fmt.Sprintf(`{"server":%q,"certificate-authority-data":%q}`, hub.URL, ca), `{"token":"plan-token"}`)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	allowed := strings.TrimPrefix(kubelet.URL, "http://")
	go func() {
		defer close(done)
		serveTunnel(ctx, config.Config{ConnectionInfoFile: file, Tunnel: config.Tunnel{Enabled: true, Allow: []string{allowed}}},
			slog.New(slog.DiscardHandler))
	}()
	for deadline := time.Now().Add(time.Minute); !library.HasSession("c-m-test:machine"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no session")
		}
	}
	through := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: library.Dialer("c-m-test:machine"),
		DisableKeepAlives: true}}
	response, err := through.Get(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(response.Body); string(body) != "ok" {
		t.Errorf("the answer is %q", body)
	}
	refused, err := library.Dialer("c-m-test:machine")(ctx, "tcp", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is written: that it is not read any more could be known before why.
	if _, err := io.ReadAll(refused); err == nil || !strings.Contains(err.Error(), "is not allowed by this agent") {
		t.Errorf("what is not allowed: %v", err)
	}
	cancel()
	<-done
}

func TestNodeTunnelIsOffUnlessItIsAskedFor(t *testing.T) {
	serveTunnel(t.Context(), config.Config{}, slog.New(slog.DiscardHandler)) // returns, and needs no hub
}

func TestInsecureTunnelAccess(t *testing.T) {
	for name, file := range map[string]string{
		"no token":        connectionFile(t, `{"server":"https://hub.example.com"}`, `{}`),
		"no verification": connectionFile(t, `{"server":"https://hub.example.com","insecure-skip-tls-verify":true}`, `{"token":"secret"}`),
	} {
		if _, err := tunnelAccess(file); err == nil || !strings.Contains(err.Error(), "the tunnel needs both") || strings.Contains(err.Error(),
			"secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// connectionFile is connection info with a kubeconfig of one cluster and one user.
func connectionFile(t *testing.T, cluster, user string) string {
	t.Helper()
	kubeconfig := fmt.Sprintf(`{"current-context":"a","clusters":[{"name":"a","cluster":%s}],"users":[{"name":"a","user":%s}],
		"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`, cluster, user)
	raw, err := json.Marshal(config.Connection{KubeConfig: kubeconfig, Namespace: "fleet-default", SecretName: "plan"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "connection.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
