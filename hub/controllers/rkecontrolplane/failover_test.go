package rkecontrolplane

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

	"github.com/drover-dev/drover/hub/access/endpoint"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// probed is a ClusterCache that knows nothing but how its probes went.
type probed struct {
	clustercache.ClusterCache
	state clustercache.HealthCheckingState
}

func (p probed) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return p.state
}

// A failover switches the kubeconfig Secret to another machine, records when, and gives that one time to answer.
func TestKubeconfigFailover(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	cache := &probed{}
	r := &Reconciler{Client: api, Cache: api, ClusterCache: cache, Now: func() time.Time { return now }}
	r.endpoints = endpoint.Chooser{Now: r.Now}
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
		m.reported, m.state.Init = machinestate.Addresses{Internal: []string{"10.0.0." + string(rune('1'+i)), "192.0.2." +
			string(rune('1'+i))}}, i == 0
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
