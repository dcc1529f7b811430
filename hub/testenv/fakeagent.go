package testenv

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// FakeAgent is a cluster-agent that the test plays with the tunnel library that legacy agents use.
type FakeAgent struct {
	env        *Env
	credential string
	// targets are what the agent connects to, by the network and address that the hub names.
	targets    map[string]string
	disconnect func()
}

// NewAgent registers an agent for a management Cluster and connects it. The cluster's API is the hub's own Kubernetes API. The agent is
// disconnected after the test.
func (e *Env) NewAgent(t *testing.T, management string) *FakeAgent {
	t.Helper()
	return e.NewAgentOf(t, management, e.Config)
}

// NewAgentOf is NewAgent for another API.
func (e *Env) NewAgentOf(t *testing.T, management string, api *rest.Config) *FakeAgent {
	t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		t.Fatal(err)
	}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, GenerateName: "test-"}}
	crt.Spec.ClusterName, crt.Spec.Purpose = management, managementv3.AgentsPurpose
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	e.Create(t, crt)
	return e.ConnectAgent(t, e.RegisterAgent(t, token, "agent-0123456789abcdef"), api)
}

// RegisterAgent exchanges a registration token for a credential.
func (e *Env) RegisterAgent(t *testing.T, token, id string) (credential string) {
	t.Helper()
	var answer struct{ Credential string }
	Until(t, "the agent to be registered", func() error {
		return e.Post(t, "/v3/connect/credential", token, map[string]string{"agent": id}, &answer)
	})
	return answer.Credential
}

// ConnectAgent connects an agent that has a credential. It forwards to an API with the rights of a configuration, or to none where that is
// nil. The agent is disconnected after the test.
func (e *Env) ConnectAgent(t *testing.T, credential string, api *rest.Config) *FakeAgent {
	t.Helper()
	targets := map[string]string{}
	if api != nil {
		targets["drover kube-api"] = forwarder(t, api)
	}
	return e.connectAgent(t, credential, targets)
}

// ConnectMachine connects a machine that has the token of its plan ServiceAccount. It allows one TCP address.
func (e *Env) ConnectMachine(t *testing.T, token, allow string) *FakeAgent {
	t.Helper()
	return e.connectAgent(t, token, map[string]string{"tcp " + allow: allow})
}

func (e *Env) connectAgent(t *testing.T, credential string, targets map[string]string) *FakeAgent {
	t.Helper()
	a := &FakeAgent{env: e, credential: credential, targets: targets}
	a.Connect(t)
	t.Cleanup(func() { a.Disconnect() })
	return a
}

// Connect opens a session.
func (a *FakeAgent) Connect(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, connected := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		header := http.Header{"Authorization": {"Bearer " + a.credential}, "X-Drover-Agent": {"cluster/test"}}
		dialer := &websocket.Dialer{TLSClientConfig: a.env.Trust(), HandshakeTimeout: time.Minute}
		local := func(ctx context.Context, network, address string) (net.Conn, error) {
			target := a.targets[network+" "+address]
			if target == "" {
				return nil, fmt.Errorf("nothing is at %s %s", network, address)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", target)
		}
		_ = remotedialer.ConnectToProxyWithDialer(ctx, strings.Replace(a.env.ServerURL, "https://", "wss://", 1)+"/v3/connect", header,
			func(string, string) bool { return true }, dialer, local, func(context.Context, *remotedialer.Session) error {
				close(connected)
				return nil
			})
	}()
	a.disconnect = func() {
		cancel()
		<-ended
	}
	select {
	case <-connected:
	case <-ended:
		t.Fatal("the agent was refused")
	case <-time.After(Patience):
		t.Fatal("the agent did not connect")
	}
}

// Disconnect ends the session.
func (a *FakeAgent) Disconnect() { a.disconnect() }

// Trust is the TLS configuration of clients of the gateway.
func (e *Env) Trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(e.CACerts)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// forwarder passes requests on to an API server with the agent's own credential. It returns its address. A request without an impersonated
// user, or with a credential, fails the test.
func forwarder(t *testing.T, api *rest.Config) string {
	t.Helper()
	transport, err := rest.TransportFor(api)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(api.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Impersonate-User") == "" || r.Header.Get("Authorization") != "" {
			t.Errorf("the hub sent %s without a user, or with a credential", r.URL.Path)
			http.Error(w, "the agent takes requests of users without credentials only", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Post sends JSON to the gateway, and reads what comes back.
func (e *Env) Post(t *testing.T, path, token string, body, into any) error {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.ServerURL+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: e.Trust()}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
	return json.Unmarshal(answer, into)
}
