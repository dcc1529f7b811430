package apiproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// Names of management Clusters.
const (
	connectedCluster    = "c-m-awake"
	disconnectedCluster = "c-m-asleep"
	// capiCluster has plain Cluster API objects, and importedCluster no control plane of the hub.
	capiCluster     = "c-m-plain"
	importedCluster = "c-m-imported"
	// previousCluster is left of an earlier Cluster with the name of connectedCluster's.
	previousCluster = "c-m-left"
)

// env is a proxy between users and the API server of a cluster, all in this process but with real connections.
type env struct {
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
	// dials are what was dialed, and through the sessions for that.
	dials   []string
	through []int64
	conns   []net.Conn
	// session and doubtful are those of all agents; next is the session after the next Route, if it is set.
	session, next int64
	doubtful      bool
}

func (a *agents) Route(key string) (tunnel.Route, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent, ok := a.known[key]
	route := tunnel.Route{Agent: agent, Session: a.session, Suspect: a.doubtful}
	if a.next != 0 {
		a.session, a.next = a.next, 0
	}
	return route, ok
}

func (a *agents) RouteOf(key string, session int64) (tunnel.Route, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent, ok := a.known[key]
	return tunnel.Route{Agent: agent, Session: session, Suspect: a.doubtful}, ok
}

func (a *agents) DialSession(_ context.Context, key string, session int64, network, address string) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.known[key]; !ok {
		return nil, &tunnel.NoSessionError{Key: key}
	}
	a.dials, a.through = append(a.dials, network+" "+address), append(a.through, session)
	conn, err := net.Dial("tcp", a.backend)
	a.conns = append(a.conns, conn)
	return conn, err
}

// cut closes all connections, as the end of a session does.
func (a *agents) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range a.conns {
		_ = conn.Close()
	}
}

func newEnv(t *testing.T, backend http.Handler, change ...func(*Options)) *env {
	t.Helper()
	w := &env{t: t, rules: map[string]bool{}, audit: filepath.Join(t.TempDir(), "audit.log")}
	w.backend = httptest.NewServer(backend)
	t.Cleanup(w.backend.Close)
	w.agents = &agents{backend: w.backend.Listener.Addr().String(),
		known: map[string]tunnel.Agent{connectedCluster: {Key: connectedCluster}, capiCluster: {Key: capiCluster},
			importedCluster: {Key: importedCluster}}}
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
		Authenticator: authenticator.RequestFunc(users), Authorizer: w, Clusters: w.clients, Tunnels: w.agents, Audit: log,
		Logger: logr.Discard(),
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

// users accepts the token "is-<name>" for the user name, "only-<cluster>" for jane in one cluster, and "admin" for the administrator.
func users(r *http.Request) (*authenticator.Response, bool, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name, ok := strings.CutPrefix(token, "is-"); ok {
		return &authenticator.Response{User: &user.DefaultInfo{Name: name, UID: "7", Groups: []string{"ops", "system:authenticated"},
			Extra: map[string][]string{"Team/x": {"blue"}}}}, true, nil
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
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	management := func(name, owner string) *managementv3.Cluster {
		return &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: owner,
		}}}
	}
	named := func(name, management string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "fleet", Name: name,
			Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: management}}
	}
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "plain", UID: "plain"}}
	capi.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
		Name: "plain"}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: named("plain", capiCluster)}
	controlPlane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(capi, clusterv1.GroupVersion.WithKind("Cluster"))}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		management(connectedCluster, "awake"), management(disconnectedCluster, "asleep"),
		management(capiCluster, "plain"), management(importedCluster, "imported"),
		management("c-m-orphan", "orphan"),
		management(previousCluster, "awake"),
		&provisioningv1.Cluster{ObjectMeta: named("awake", connectedCluster),
			Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}},
		&provisioningv1.Cluster{ObjectMeta: named("imported", importedCluster)},
		&provisioningv1.Cluster{ObjectMeta: named("asleep", disconnectedCluster)},
		capi, controlPlane,
	).Build()
}

func (w *env) allow(rules ...string) {
	for _, rule := range rules {
		w.rules[rule] = true
	}
}

// Authorize allows what allow has allowed, as the management cluster's authorizer.
func (w *env) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
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
