package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/tunnel"
	"github.com/drover-dev/drover/hub/userauth"
)

// theCluster is the management Cluster that is connected; asleep is one that is not, plain one that only Cluster API knows.
// imported is one that the hub has not made.
const theCluster, asleep, plain, imported = "c-m-awake", "c-m-asleep", "c-m-plain", "c-m-imported"

// world is a proxy between users and the API server of a cluster, all in this process but with real connections between them.
type world struct {
	t *testing.T
	// hub is where users send requests to; backend is the cluster's API server behind its agent.
	hub     *httptest.Server
	handler *Handler
	backend *httptest.Server
	agents  *agents
	clients client.Client
	// rules are who may do what: "user verb resource/name".
	rules map[string]bool
	audit string
}

// agents are the tunnels: each dial is a connection to the backend.
type agents struct {
	mu      sync.Mutex
	backend string
	known   map[string]tunnel.Agent
	dials   []string
	conns   []net.Conn
	// session and doubtful are those of all agents.
	session  int64
	doubtful bool
}

func (a *agents) Route(key string) (tunnel.Route, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent, ok := a.known[key]
	return tunnel.Route{Agent: agent, Session: a.session, Doubtful: a.doubtful}, ok
}

func (a *agents) Dial(_ context.Context, key, network, address string) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.known[key]; !ok {
		return nil, &tunnel.NoSessionError{Key: key}
	}
	a.dials = append(a.dials, network+" "+address)
	conn, err := net.Dial("tcp", a.backend)
	a.conns = append(a.conns, conn)
	return conn, err
}

// cut ends all connections, as the end of a session does.
func (a *agents) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range a.conns {
		_ = conn.Close()
	}
}

func newWorld(t *testing.T, backend http.Handler, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, rules: map[string]bool{}, audit: filepath.Join(t.TempDir(), "audit.log")}
	w.backend = httptest.NewServer(backend)
	t.Cleanup(w.backend.Close)
	w.agents = &agents{backend: w.backend.Listener.Addr().String(), known: map[string]tunnel.Agent{theCluster: {Key: theCluster}, plain: {Key: plain}, imported: {Key: imported}}}
	w.clients = clusters(t)
	log, err := NewAuditLog(AuditOptions{Path: w.audit})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() { written <- log.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
	opts := Options{
		Authenticator: authenticator.RequestFunc(users), Authorizer: w, Clusters: w.clients, Tunnels: w.agents, Audit: log, Logger: logr.Discard(),
	}
	for _, f := range change {
		f(&opts)
	}
	if w.handler, err = New(opts); err != nil {
		t.Fatal(err)
	}
	w.hub = httptest.NewUnstartedServer(w.handler)
	w.hub.EnableHTTP2 = true
	w.hub.StartTLS()
	t.Cleanup(func() {
		w.handler.Close()
		w.hub.Close()
	})
	w.allow("jane get clusters/awake")
	return w
}

// users knows everybody by the token "is-<name>"; the token "only-<cluster>" is jane's for one cluster, "admin" the
// administrator's.
func users(r *http.Request) (*authenticator.Response, bool, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name, ok := strings.CutPrefix(token, "is-"); ok {
		return &authenticator.Response{User: &user.DefaultInfo{Name: name, UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"Team/x": {"blue"}}}}, true, nil
	}
	if cluster, ok := strings.CutPrefix(token, "only-"); ok {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}, Audiences: authenticator.Audiences{cluster}}, true, nil
	}
	if token == "admin" {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}}, true, nil
	}
	if token == "flood" {
		return nil, false, userauth.ErrTooMany
	}
	if token == "outage" {
		return nil, false, userauth.ErrUnavailable
	}
	return nil, false, nil
}

func clusters(t testing.TB) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	management := func(name, owner string) *managementv3.Cluster {
		return &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: owner,
		}}}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		management(theCluster, "awake"), management(asleep, "asleep"), management(plain, "plain"), management(imported, "imported"), management("c-m-orphan", "orphan"),
		&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "awake"}, Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}},
		&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "imported"}},
		&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "asleep"}},
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "plain"}},
	).Build()
}

func (w *world) allow(rules ...string) {
	for _, rule := range rules {
		w.rules[rule] = true
	}
}

// Authorize is the management cluster's word.
func (w *world) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "unlucky" {
		return authorizer.DecisionNoOpinion, "", io.ErrUnexpectedEOF
	}
	resource := a.GetResource()
	if resource == "clusters" && (a.GetSubresource() != "proxy" || a.GetNamespace() != "fleet") {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if a.GetAPIGroup() == clusterv1.GroupVersion.Group {
		resource = "capi-" + resource
	}
	if w.rules[strings.Join([]string{a.GetUser().GetName(), a.GetVerb(), resource + "/" + a.GetName()}, " ")] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// client is an HTTP client of the hub.
func (w *world) client(http2 bool) *http.Client {
	transport := w.hub.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = http2
	if !http2 {
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) request(method, path, token string, headers ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequest(method, w.hub.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// answer is what came back, and its Status where it is one.
type answer struct {
	*http.Response
	body   string
	status metav1.Status
}

func (w *world) send(r *http.Request) *answer {
	w.t.Helper()
	response, err := w.client(true).Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := &answer{Response: response, body: string(body)}
	_ = json.Unmarshal(body, &a.status)
	return a
}

// events waits until the audit log has as many events of a stage, and returns them.
func (w *world) events(stage string, count int) []auditv1.Event {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		raw, err := os.ReadFile(w.audit)
		if err != nil {
			w.t.Fatal(err)
		}
		var events []auditv1.Event
		for line := range bytes.Lines(raw) {
			var event auditv1.Event
			if err := json.Unmarshal(line, &event); err == nil && string(event.Stage) == stage {
				events = append(events, event)
			}
		}
		if len(events) >= count {
			return events
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d events of stage %s, want %d:\n%s", len(events), stage, count, raw)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// seen is a backend that tells what it was asked.
type seen struct {
	Method, URI, Host string
	Header            http.Header
	Body              string
}

func tell(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
	_ = json.NewEncoder(w).Encode(seen{r.Method, r.RequestURI, r.Host, r.Header, string(body)})
}

func (a *answer) seen(t *testing.T) seen {
	t.Helper()
	var s seen
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", a.Status, a.body)
	}
	return s
}

func pemOf(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func requestInfo(t *testing.T, r *http.Request) *request.RequestInfo {
	t.Helper()
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
