package controlplane

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/pki"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

// wayWorld is a cluster with two servers and a tunnel, each of which the test opens and closes.
type wayWorld struct {
	t     *testing.T
	now   time.Time
	api   client.WithWatch
	r     *Reconciler
	cache *wayCache
	// agent tells whether the cluster's agent is connected, sees what answers.
	agent bool
	sees  reach
	looks int
	// reconnects are those that were asked for.
	reconnects int
}

// wayCache is a ClusterCache of one cluster.
type wayCache struct {
	clustercache.ClusterCache
	state  clustercache.HealthCheckingState
	config *rest.Config
}

func (c *wayCache) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return c.state
}

func (c *wayCache) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	if c.config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.config, nil
}

// Connected is the presence of the agent.
func (w *wayWorld) Connected(string) bool { return w.agent }

// OnChange is not called here.
func (w *wayWorld) OnChange(func(string)) {}

func newWayWorld(t *testing.T) *wayWorld {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, managementv3.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &wayWorld{t: t, now: time.Now().Truncate(time.Second), cache: &wayCache{}}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a", UID: "m"}}).Build()
	clock := func() time.Time { return w.now }
	access := &tunnelaccess.Access{
		Settings: settings.Settings{ServerURL: "https://hub"}, Presence: w, Client: w.api, Live: w.api, Now: clock,
		Issue: func(u user.Info, cluster string, _ time.Duration, id string, lasting bool) (string, error) {
			if !lasting {
				return "", errors.New("nothing is asked for here")
			}
			return "token:" + u.GetGroups()[0] + ":" + cluster + ":" + id, nil
		},
	}
	w.r = &Reconciler{Client: w.api, Cache: w.api, ClusterCache: w.cache, Access: access, Now: clock, Reconnect: func(client.ObjectKey) { w.reconnects++ }}
	w.r.lookout = newLookout(access, clock)
	w.r.lookout.ask = func(context.Context, look) reach { w.looks++; return w.sees }
	return w
}

// pass runs what a pass does for the kubeconfig, twice where a look had to be waited for, and returns where the Secret leads.
func (w *wayWorld) pass(silent time.Duration) string {
	w.t.Helper()
	w.cache.state = clustercache.HealthCheckingState{LastProbeTime: w.now, LastProbeSuccessTime: w.now.Add(-silent)}
	if silent > 0 {
		w.cache.state.ConsecutiveFailures = 1
	}
	for range 2 {
		looks := w.looks
		if err := w.r.ensureKubeconfig(w.t.Context(), w.scope()); err != nil {
			w.t.Fatal(err)
		}
		select {
		case <-w.r.lookout.done:
		case <-time.After(100 * time.Millisecond):
		}
		if w.looks == looks {
			break
		}
	}
	return w.config().Host
}

func (w *wayWorld) config() *rest.Config {
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

var wayAuthority = func() *authority {
	pair, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: pki.CALifetime}, nil, time.Now())
	if err != nil {
		panic(err)
	}
	return &authority{pair: pair}
}()

func (w *wayWorld) scope() *scope {
	s := &scope{
		controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "u"}},
		cluster:      &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
		serverCA:     wayAuthority, clientCA: wayAuthority,
	}
	s.management = "c-m-a"
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	m := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	m.reported, m.state.Init = addressSet{Internal: []string{"10.0.0.1"}}, true
	s.machines = append(s.machines, m)
	return s
}

func (w *wayWorld) tokens() []managementv3.Token {
	w.t.Helper()
	var list managementv3.TokenList
	if err := w.api.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

const (
	directly  = "https://10.0.0.1:6443"
	throughIt = "https://hub/k8s/clusters/c-m-a"
)

// The kubeconfig goes the way that answers, direct first, and does not change its way without need.
func TestWayOfKubeconfig(t *testing.T) {
	w := newWayWorld(t)
	for _, step := range []struct {
		name   string
		after  time.Duration
		agent  bool
		sees   reach
		silent time.Duration
		want   string
	}{
		{name: "a new cluster", want: directly},
		{name: "it does not answer, and there is no agent", after: time.Minute, silent: time.Minute, want: directly},
		{name: "the agent comes, but the API does not answer there either", after: time.Minute, agent: true, silent: 2 * time.Minute, want: directly},
		{name: "it answers there", after: time.Minute, agent: true, sees: reach{tunnel: true}, silent: 3 * time.Minute, want: throughIt},
		{name: "and goes on to", after: time.Minute, agent: true, sees: reach{tunnel: true}, want: throughIt},
		{name: "it would answer directly for a moment", after: time.Minute, agent: true, sees: reach{direct: directly, tunnel: true}, want: throughIt},
		{name: "both are slow", after: time.Minute, agent: true, sees: reach{direct: directly, tunnel: true}, silent: 10 * time.Second, want: throughIt},
		{name: "the agent goes, and nothing answers", after: time.Minute, silent: time.Minute, want: throughIt},
		{name: "the agent is away, and a server answers", after: time.Minute, sees: reach{direct: directly}, silent: time.Minute, want: directly},
		{name: "the agent comes back", after: time.Minute, agent: true, sees: reach{direct: directly, tunnel: true}, want: directly},
		{name: "one slow answer", after: time.Minute, agent: true, sees: reach{direct: directly, tunnel: true}, silent: 5 * time.Second, want: directly},
		{name: "a firewall is closed", after: time.Minute, agent: true, sees: reach{tunnel: true}, silent: 15 * time.Second, want: throughIt},
		{name: "and opened after an hour", after: time.Hour, agent: true, sees: reach{direct: directly, tunnel: true}, want: directly},
	} {
		w.now, w.agent, w.sees = w.now.Add(step.after), step.agent, step.sees
		if got := w.pass(step.silent); got != step.want {
			t.Errorf("%s: it leads to %s, want %s", step.name, got, step.want)
		}
	}
}

// A cluster at rest costs nothing: no look, no write, no token.
func TestWayAtRest(t *testing.T) {
	w := newWayWorld(t)
	w.agent, w.sees = true, reach{tunnel: true}
	w.pass(0)
	w.now = w.now.Add(time.Minute)
	w.pass(time.Minute)
	looks, before := w.looks, w.resourceVersion()
	for range 50 {
		w.now = w.now.Add(time.Minute)
		w.pass(0)
	}
	if w.looks != looks || w.resourceVersion() != before || len(w.tokens()) != 1 {
		t.Errorf("there were %d looks, the Secret went from %s to %s, and there are %d tokens", w.looks-looks, before, w.resourceVersion(), len(w.tokens()))
	}
}

func (w *wayWorld) resourceVersion() string {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-kubeconfig"}, secret); err != nil {
		w.t.Fatal(err)
	}
	return secret.ResourceVersion
}

// The token in a kubeconfig is the hub's own, is replaced long before its end, and the one before is revoked after a while; so is one that
// somebody has revoked.
func TestTokenOfKubeconfig(t *testing.T) {
	w := newWayWorld(t)
	w.pass(0)
	w.now, w.agent, w.sees = w.now.Add(time.Minute), true, reach{tunnel: true}
	w.pass(time.Minute)
	tokens := w.tokens()
	if len(tokens) != 1 || tokens[0].Spec.User.Username != "system:drover:hub" || tokens[0].Spec.User.Groups[0] != "system:masters" || tokens[0].Spec.ClusterName != "c-m-a" {
		t.Fatalf("the tokens are %+v", tokens)
	}
	first := w.config().BearerToken
	w.now = w.now.Add(21 * 24 * time.Hour)
	w.pass(0)
	second := w.config().BearerToken
	if first == second {
		t.Fatal("the token was not replaced")
	}
	if n := len(w.tokens()); n != 2 {
		t.Errorf("there are %d tokens; readers of the former one have no time to change", n)
	}
	w.now = w.now.Add(time.Hour)
	w.pass(0)
	if n := len(w.tokens()); n != 1 {
		t.Errorf("there are %d tokens", n)
	}
	for _, token := range w.tokens() {
		if err := w.api.Delete(t.Context(), &token); err != nil {
			t.Fatal(err)
		}
	}
	w.pass(0)
	if third := w.config().BearerToken; third == second || len(w.tokens()) != 1 {
		t.Error("a token that was revoked stays in the Secret")
	}
}

// The connection follows the kubeconfig at once.
func TestConnectionFollowsKubeconfig(t *testing.T) {
	w := newWayWorld(t)
	w.pass(0)
	w.cache.config = w.config()
	w.pass(0)
	if w.reconnects != 0 {
		t.Errorf("%d reconnects at rest", w.reconnects)
	}
	w.now, w.agent, w.sees = w.now.Add(time.Minute), true, reach{tunnel: true}
	w.pass(time.Minute)
	w.pass(0)
	if w.reconnects == 0 {
		t.Error("the connection leads where the kubeconfig led before")
	}
	w.cache.config, w.reconnects = w.config(), 0
	w.now = w.now.Add(time.Minute)
	w.pass(0)
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
	w.r.follow(t.Context(), w.scope(), secret)
	if w.reconnects != 1 {
		t.Errorf("%d reconnects, want 1", w.reconnects)
	}
	w.cache.state.LastProbeTime = w.now
	w.r.follow(t.Context(), w.scope(), secret)
	if w.reconnects != 1 {
		t.Error("an attempt that failed on the present way is made again at once")
	}
	// One that failed while the agent was away says nothing either.
	w.r.arrivals = &arrivals{connected: w.Connected, reader: w.api, now: func() time.Time { return w.now }, since: map[string]time.Time{}}
	w.r.arrivals.changed("c-m-a")
	w.r.follow(t.Context(), w.scope(), secret)
	if w.reconnects != 2 {
		t.Errorf("%d reconnects, want 2: the agent has come back", w.reconnects)
	}
	w.agent = false
	if w.r.arrivals.changed("c-m-a"); !w.r.arrivals.of("c-m-a").IsZero() {
		t.Error("an agent that has gone counts as connected")
	}
}
