package controlplane

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/pki"
	"github.com/drover-dev/drover/hub/rollout"
)

// A kubeconfig goes to another machine, not to another address of the same, and to one that is known to be down only if there is no other.
func TestNextServer(t *testing.T) {
	a := apiServer{machine: "a", urls: []string{"https://a1", "https://a2"}}
	b := apiServer{machine: "b", urls: []string{"https://b"}, down: true}
	c := apiServer{machine: "c", urls: []string{"https://c"}}
	for _, tc := range []struct {
		name    string
		servers []apiServer
		current string
		want    string
	}{
		{"one machine", []apiServer{a}, "https://a2", ""},
		{"the next that works", []apiServer{a, b, c}, "https://a1", "https://c"},
		{"round again", []apiServer{a, b, c}, "https://c", "https://a1"},
		{"none is known to work", []apiServer{a, b}, "https://a1", "https://b"},
		{"a server that is not the cluster's", []apiServer{a, c}, "https://x", ""},
	} {
		if got := nextServer(tc.servers, tc.current); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// probed is a ClusterCache that knows nothing but how its probes went.
type probed struct {
	clustercache.ClusterCache
	state clustercache.HealthCheckingState
}

func (p probed) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return p.state
}

// The kubeconfig follows: its Secret leads to another machine, says when that was, and stays as it is while that one is given its time.
func TestKubeconfigFailover(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	cache := &probed{}
	r := &Reconciler{Client: api, Cache: api, ClusterCache: cache, Now: func() time.Time { return now }}
	s := &scope{
		controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "u"}},
		cluster:      &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
	}
	for _, into := range []**authority{&s.serverCA, &s.clientCA} {
		pair, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: pki.CALifetime}, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		*into = &authority{pair: pair}
	}
	for i, name := range []string{"a", "b"} {
		m := server(name, rollout.ProgressApplied, rollout.ChangeNone, "")
		m.reported, m.state.Init = addressSet{Internal: []string{"10.0.0." + string(rune('1'+i)), "192.0.2." + string(rune('1'+i))}}, i == 0
		s.machines = append(s.machines, m)
	}
	for _, step := range []struct {
		name, want string
		silent     time.Duration
	}{
		{"a new cluster", "https://10.0.0.1:6443", 0},
		{"it answers", "https://10.0.0.1:6443", 0},
		{"its first server dies", "https://10.0.0.2:6443", time.Minute},
		{"the next one is given time", "https://10.0.0.2:6443", time.Minute},
		{"that one answers", "https://10.0.0.2:6443", 0},
	} {
		cache.state = clustercache.HealthCheckingState{LastProbeSuccessTime: now.Add(-step.silent)}
		if step.silent > 0 {
			cache.state.ConsecutiveFailures = 3
		}
		if err := r.ensureKubeconfig(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{}
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c-kubeconfig"}, secret); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.Load(secret.Data["value"])
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Clusters["c"].Server; got != step.want {
			t.Errorf("%s: it leads to %s, want %s", step.name, got, step.want)
		}
	}
}

// A server that does not answer is left, but not at the first hiccup, and the next one is given time to be found.
func TestOtherServer(t *testing.T) {
	now := time.Unix(10000, 0)
	servers := []apiServer{{machine: "a", urls: []string{"https://a"}}, {machine: "b", urls: []string{"https://b"}}}
	for _, tc := range []struct {
		name     string
		failures int
		silent   time.Duration
		moved    time.Duration
		want     string
	}{
		{name: "it answers"},
		{name: "one probe failed", failures: 1, silent: 25 * time.Second},
		{name: "two failed at once", failures: 2, silent: 5 * time.Second},
		{name: "it is silent", failures: 2, silent: 25 * time.Second, want: "https://b"},
		{name: "it has just been moved", failures: 9, silent: time.Hour, moved: time.Minute},
		{name: "it was moved long ago", failures: 9, silent: 10 * time.Minute, moved: 3 * time.Minute, want: "https://b"},
		{name: "it is silent for hours", failures: 9, silent: 5 * time.Hour, moved: 20 * time.Minute},
	} {
		secret := &corev1.Secret{}
		if tc.moved > 0 {
			metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rkev1.KubeconfigMovedAnnotation, now.Add(-tc.moved).UTC().Format(time.RFC3339))
		}
		r := &Reconciler{Now: func() time.Time { return now }, ClusterCache: probed{state: clustercache.HealthCheckingState{
			ConsecutiveFailures: tc.failures, LastProbeSuccessTime: now.Add(-tc.silent),
		}}}
		s := &scope{cluster: &clusterv1.Cluster{}}
		if got := r.otherServer(t.Context(), s, secret, "https://a", servers); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if looks := s.requeueAfter > 0; looks != (tc.failures > 2 || tc.want != "") {
			t.Errorf("%s: it looks again after %v", tc.name, s.requeueAfter)
		}
	}
}
