package rkecontrolplane

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/access/endpoint"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// kubeconfigWorld is a cluster with a server and a tunnel, each of which the test opens and closes.
type kubeconfigWorld struct {
	t     *testing.T
	now   time.Time
	api   client.WithWatch
	r     *Reconciler
	cache *fakeClusterCache
	// agent reports whether the cluster's agent is connected, sees what answers.
	agent  bool
	sees   endpoint.Result
	probes int
	// authority that the hub has of the cluster, for servers and clients.
	authority *authority
	// reconnects are those that were asked for.
	reconnects int
	// key is what the hub signs tokens with.
	key string
}

// fakeClusterCache is a ClusterCache of one cluster.
type fakeClusterCache struct {
	clustercache.ClusterCache
	state  clustercache.HealthCheckingState
	config *rest.Config
}

func (c *fakeClusterCache) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return c.state
}

func (c *fakeClusterCache) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	if c.config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.config, nil
}

// Connected is the presence of the agent.
func (w *kubeconfigWorld) Connected(string) bool { return w.agent }

// OnChange is not called here.
func (w *kubeconfigWorld) OnChange(func(string)) {}

func newKubeconfigWorld(t *testing.T) *kubeconfigWorld {
	t.Helper()
	scheme := fakeclient.Scheme(t, clientgoscheme.AddToScheme, managementv3.AddToScheme, provisioningv1.AddToScheme)
	w := &kubeconfigWorld{t: t, now: time.Now().Truncate(time.Second), cache: &fakeClusterCache{}, authority: testAuthority}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a",
		UID: "m"}}).Build()
	clock := func() time.Time { return w.now }
	access := &tunnelaccess.Access{
		Settings: settings.Settings{ServerURL: "https://hub"}, Presence: w, Client: w.api, Live: w.api, Now: clock,
		Issue: func(u user.Info, cluster string, _ time.Duration, id string, lasting bool) (string, error) {
			if !lasting {
				return "", errors.New("nothing is asked for here")
			}
			return "token" + w.key + ":" + u.GetGroups()[0] + ":" + cluster + ":" + id, nil
		},
		Verify: w.verify,
	}
	w.r = &Reconciler{Client: w.api, Cache: w.api, ClusterCache: w.cache, Access: access, Now: clock,
		Reconnect: func(client.ObjectKey) { w.reconnects++ }}
	probe := func(context.Context, endpoint.Targets) endpoint.Result { w.probes++; return w.sees }
	w.r.endpoints = endpoint.Chooser{Now: clock, Prober: endpoint.NewProber(probe, clock)}
	return w
}

// reconcile reconciles the kubeconfig, twice where a probe was started, and returns where the Secret leads.
func (w *kubeconfigWorld) reconcile(silent time.Duration) string {
	w.t.Helper()
	w.cache.state = clustercache.HealthCheckingState{LastProbeTime: w.now, LastProbeSuccessTime: w.now.Add(-silent)}
	if silent > 0 {
		w.cache.state.ConsecutiveFailures = 1
	}
	for range 2 {
		probes := w.probes
		if err := w.r.ensureKubeconfig(w.t.Context(), w.scope()); err != nil {
			w.t.Fatal(err)
		}
		select {
		case <-w.r.endpoints.Prober.Done:
		case <-time.After(100 * time.Millisecond):
		}
		if w.probes == probes {
			break
		}
	}
	return w.config().Host
}

func (w *kubeconfigWorld) config() *rest.Config {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-kubeconfig"}, secret); err != nil {
		w.t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		w.t.Fatal(err)
	}
	return config
}

var testAuthority = func() *authority {
	pair, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: pki.CALifetime}, nil, time.Now())
	if err != nil {
		panic(err)
	}
	return &authority{pair: pair}
}()

func (w *kubeconfigWorld) scope() *scope {
	s := &scope{
		controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "u"}},
		cluster:      &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
		serverCA:     w.authority, clientCA: w.authority,
	}
	s.management = "c-m-a"
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	m.reported, m.state.Init = machinestate.Addresses{Internal: []string{"10.0.0.1"}}, true
	s.machines = append(s.machines, m)
	return s
}

func (w *kubeconfigWorld) tokens() []managementv3.Token {
	w.t.Helper()
	var list managementv3.TokenList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

const (
	directly      = "https://10.0.0.1:6443"
	throughTunnel = "https://hub/k8s/clusters/c-m-a"
)

// The kubeconfig leads to an endpoint that answers, servers first, and is not switched without need.
func TestEndpointOfKubeconfig(t *testing.T) { synctest.Test(t, testEndpointOfKubeconfig) }

func testEndpointOfKubeconfig(t *testing.T) {
	w := newKubeconfigWorld(t)
	for _, step := range []struct {
		name   string
		after  time.Duration
		agent  bool
		sees   endpoint.Result
		silent time.Duration
		want   string
	}{
		{name: "a new cluster", want: directly},
		{name: "it does not answer, and there is no agent", after: time.Minute, silent: time.Minute, want: directly},
		{name: "the agent comes, but the API does not answer there either", after: time.Minute, agent: true, silent: 2 * time.Minute,
			want: directly},
		{name: "it answers there", after: time.Minute, agent: true, sees: endpoint.Result{Tunnel: true}, silent: 3 * time.Minute,
			want: throughTunnel},
		{name: "and goes on to", after: time.Minute, agent: true, sees: endpoint.Result{Tunnel: true}, want: throughTunnel},
		{name: "it would answer directly for a moment", after: time.Minute, agent: true, sees: endpoint.Result{Server: directly, Tunnel: true},
			want: throughTunnel},
		{name: "both are slow", after: time.Minute, agent: true, sees: endpoint.Result{Server: directly, Tunnel: true}, silent: 10 * time.Second,
			want: throughTunnel},
		{name: "the agent goes, and nothing answers", after: time.Minute, silent: time.Minute, want: throughTunnel},
		{name: "the agent is disconnected, and a server answers", after: time.Minute, sees: endpoint.Result{Server: directly},
			silent: time.Minute,
			want:   directly},
		{name: "the agent comes back", after: time.Minute, agent: true, sees: endpoint.Result{Server: directly, Tunnel: true}, want: directly},
		{name: "one slow answer", after: time.Minute, agent: true, sees: endpoint.Result{Server: directly, Tunnel: true},
			silent: 5 * time.Second, want: directly},
		{name: "a firewall is closed", after: time.Minute, agent: true, sees: endpoint.Result{Tunnel: true}, silent: 15 * time.Second,
			want: throughTunnel},
		{name: "and opened after an hour", after: time.Hour, agent: true, sees: endpoint.Result{Server: directly, Tunnel: true}, want: directly},
	} {
		w.now, w.agent, w.sees = w.now.Add(step.after), step.agent, step.sees
		if got := w.reconcile(step.silent); got != step.want {
			t.Errorf("%s: it leads to %s, want %s", step.name, got, step.want)
		}
	}
}

// A cluster whose certificate authorities were replaced says what to do, and is reached again once the hub has them. Nothing that a server
// says of its own is believed.
func TestOtherAuthorities(t *testing.T) { synctest.Test(t, testOtherAuthorities) }

func testOtherAuthorities(t *testing.T) {
	w := newKubeconfigWorld(t)
	w.reconcile(0)
	untrusted := endpoint.Mismatch{Server: directly}
	for _, step := range []struct {
		name   string
		after  time.Duration
		agent  bool
		sees   endpoint.Result
		silent time.Duration
		reason string // of the condition; empty if it is true
		secret string // that the message names; empty for none
	}{
		{name: "it answers"},
		{name: "its authorities are replaced", sees: endpoint.Result{Mismatch: untrusted}, silent: time.Minute,
			reason: "CertificateAuthorityMismatch", secret: "c-ca"},
		{name: "it is probed again", after: 6 * time.Minute, sees: endpoint.Result{Mismatch: untrusted}, silent: time.Hour,
			reason: "CertificateAuthorityMismatch", secret: "c-ca"},
		{name: "only one of them", after: 6 * time.Minute, sees: endpoint.Result{Mismatch: endpoint.Mismatch{Server: directly, Client: true}},
			silent: time.Hour, reason: "CertificateAuthorityMismatch", secret: "c-cca"},
		{name: "it is down", after: 6 * time.Minute, silent: time.Hour},
		{name: "the agent comes", after: 6 * time.Minute, agent: true, sees: endpoint.Result{Tunnel: true, Mismatch: untrusted},
			silent: time.Hour,
			secret: "c-ca"},
		{name: "the cluster is reached through the tunnel", after: time.Second, agent: true, sees: endpoint.Result{Tunnel: true,
			Mismatch: untrusted}, secret: "c-ca"},
		{name: "later too", after: 20 * time.Minute, agent: true, sees: endpoint.Result{Tunnel: true, Mismatch: untrusted}, secret: "c-ca"},
	} {
		w.now, w.agent, w.sees = w.now.Add(step.after), step.agent, step.sees
		w.reconcile(step.silent)
		s := w.scope()
		if err := w.r.ensureKubeconfig(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		text := s.kubeconfig.Message + s.kubeconfigNote
		if s.kubeconfig.Reason != step.reason || (step.secret == "") != (text == "") || !strings.Contains(text, "Secret "+step.secret) &&
			step.secret != "" {
			t.Errorf("%s: %+v, note %q", step.name, s.kubeconfig, s.kubeconfigNote)
		}
	}
	// The hub is given the new ones: they are probed at once.
	pair, err := pki.Issue(pki.Request{CommonName: "new", IsCA: true, Lifetime: pki.CALifetime}, nil, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.authority, w.sees = &authority{pair: pair}, endpoint.Result{Server: directly, Tunnel: true}
	if got := w.reconcile(0); got != directly || string(w.config().CAData) != string(pair.CertPEM()) {
		t.Errorf("it leads to %s and trusts\n%s", got, w.config().CAData)
	}
	user, err := pki.ParseCert(w.config().CertData)
	if err != nil || user.CheckSignatureFrom(pair.Cert) != nil {
		t.Errorf("the client certificate is not of the new authority: %v", err)
	}
}

// A cluster at rest costs nothing: no probe, no write, no token.
func TestKubeconfigAtRest(t *testing.T) { synctest.Test(t, testKubeconfigAtRest) }

func testKubeconfigAtRest(t *testing.T) {
	w := newKubeconfigWorld(t)
	w.agent, w.sees = true, endpoint.Result{Tunnel: true}
	w.reconcile(0)
	w.now = w.now.Add(time.Minute)
	w.reconcile(time.Minute)
	probes, before := w.probes, w.resourceVersion()
	for range 50 {
		w.now = w.now.Add(time.Minute)
		w.reconcile(0)
	}
	if w.probes != probes || w.resourceVersion() != before || len(w.tokens()) != 1 {
		t.Errorf("there were %d probes, the Secret went from %s to %s, and there are %d tokens", w.probes-probes, before, w.resourceVersion(),
			len(w.tokens()))
	}
}

func (w *kubeconfigWorld) resourceVersion() string {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-kubeconfig"}, secret); err != nil {
		w.t.Fatal(err)
	}
	return secret.ResourceVersion
}

// The token in a kubeconfig is the hub's own, is replaced long before its end, and the one before is revoked after a while; so is one that
// somebody has revoked.
func TestTokenOfKubeconfig(t *testing.T) { synctest.Test(t, testTokenOfKubeconfig) }

func testTokenOfKubeconfig(t *testing.T) {
	w := newKubeconfigWorld(t)
	w.reconcile(0)
	w.now, w.agent, w.sees = w.now.Add(time.Minute), true, endpoint.Result{Tunnel: true}
	w.reconcile(time.Minute)
	tokens := w.tokens()
	if len(tokens) != 1 || tokens[0].Spec.User.Username != "system:drover:hub" || tokens[0].Spec.User.Groups[0] != "system:masters" ||
		tokens[0].Spec.ClusterName != "c-m-a" {
		t.Fatalf("the tokens are %+v", tokens)
	}
	first := w.config().BearerToken
	w.now = w.now.Add(21 * 24 * time.Hour)
	w.reconcile(0)
	second := w.config().BearerToken
	if first == second {
		t.Fatal("the token was not replaced")
	}
	if n := len(w.tokens()); n != 2 {
		t.Errorf("there are %d tokens; readers of the former one have no time to change", n)
	}
	w.now = w.now.Add(time.Hour)
	w.reconcile(0)
	if n := len(w.tokens()); n != 1 {
		t.Errorf("there are %d tokens", n)
	}
	for _, token := range w.tokens() {
		if err := w.api.Delete(t.Context(), &token); err != nil {
			t.Fatal(err)
		}
	}
	w.reconcile(0)
	if third := w.config().BearerToken; third == second || len(w.tokens()) != 1 {
		t.Error("a token that was revoked stays in the Secret")
	}
}

// The connection follows the kubeconfig at once.
func TestConnectionFollowsKubeconfig(t *testing.T) { synctest.Test(t, testConnectionFollowsKubeconfig) }

func testConnectionFollowsKubeconfig(t *testing.T) {
	w := newKubeconfigWorld(t)
	w.reconcile(0)
	w.cache.config = w.config()
	w.reconcile(0)
	if w.reconnects != 0 {
		t.Errorf("%d reconnects at rest", w.reconnects)
	}
	w.now, w.agent, w.sees = w.now.Add(time.Minute), true, endpoint.Result{Tunnel: true}
	w.reconcile(time.Minute)
	w.reconcile(0)
	if w.reconnects == 0 {
		t.Error("the connection leads where the kubeconfig led before")
	}
	w.cache.config, w.reconnects = w.config(), 0
	w.now = w.now.Add(time.Minute)
	w.reconcile(0)
	if w.reconnects != 0 {
		t.Errorf("%d reconnects although it leads there", w.reconnects)
	}
	// An attempt that failed before the kubeconfig was moved says nothing about the present way.
	w.cache.config = nil
	w.cache.state = clustercache.HealthCheckingState{LastProbeTime: w.now.Add(-2 * time.Minute), ConsecutiveFailures: 1}
	secret := &corev1.Secret{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-kubeconfig"}, secret); err != nil {
		t.Fatal(err)
	}
	w.r.reconnect(t.Context(), w.scope(), secret)
	if w.reconnects != 1 {
		t.Errorf("%d reconnects, want 1", w.reconnects)
	}
	w.cache.state.LastProbeTime = w.now
	w.r.reconnect(t.Context(), w.scope(), secret)
	if w.reconnects != 1 {
		t.Error("an attempt that failed on the present way is made again at once")
	}
	// One that failed while the agent was disconnected says nothing either.
	w.r.agents = &agentSessions{connected: w.Connected, reader: w.api, now: func() time.Time { return w.now }, since: map[string]time.Time{}}
	w.r.agents.changed("c-m-a")
	w.r.reconnect(t.Context(), w.scope(), secret)
	if w.reconnects != 2 {
		t.Errorf("%d reconnects, want 2: the agent has come back", w.reconnects)
	}
	w.agent = false
	if w.r.agents.changed("c-m-a"); !w.r.agents.connectedSince("c-m-a").IsZero() {
		t.Error("an agent that has gone counts as connected")
	}
}
