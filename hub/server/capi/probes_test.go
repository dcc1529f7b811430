package capi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// TestProbes: a cluster that answers is probed less often where there are many, one that does not as often as ever.
func TestProbes(t *testing.T) {
	now := time.Now()
	answers := clustercache.HealthCheckingState{LastProbeTime: now, LastProbeSuccessTime: now}
	fails := clustercache.HealthCheckingState{LastProbeTime: now, LastProbeSuccessTime: now, ConsecutiveFailures: 1}
	for name, tc := range map[string]struct {
		clusters int64
		state    clustercache.HealthCheckingState
		asked    time.Duration
		want     time.Duration
	}{
		"few clusters":             {100, answers, probeInterval, probeInterval},
		"many clusters":            {200, answers, probeInterval, 20 * time.Second},
		"very many clusters":       {100_000, answers, probeInterval, maxProbeInterval},
		"one that does not answer": {200, fails, probeInterval, probeInterval},
		"one that is not there":    {200, clustercache.HealthCheckingState{}, probeInterval, probeInterval},
		"a connection again":       {200, answers, 30 * time.Second, 30 * time.Second},
		"an event":                 {200, answers, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &probes{state: func(context.Context, client.ObjectKey) clustercache.HealthCheckingState { return tc.state }}
			p.clusters.Store(tc.clusters)
			queue := p.queue(priorityqueue.New("test", func(o *priorityqueue.Opts[ctrl.Request]) {
				o.RateLimiter = workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]()
			}))
			defer queue.ShutDown()
			began, key := time.Now(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "demo"}}
			queue.AddWithOpts(priorityqueue.AddOpts{After: tc.asked}, key)
			got, _ := queue.Get()
			if waited := time.Since(began); got != key || waited != tc.want {
				t.Errorf("%s: %v after %s, want %s", name, got, waited, tc.want)
			}
		})
	}
}

// TestProbesCount: the Clusters of the cache count.
func TestProbesCount(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	informers := &informertest.FakeInformers{Scheme: scheme}
	p, err := newProbes(t.Context(), informers)
	if err != nil {
		t.Fatal(err)
	}
	informer, err := informers.FakeInformerFor(t.Context(), &clusterv1.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		informer.Add(&clusterv1.Cluster{})
	}
	informer.Delete(&clusterv1.Cluster{})
	if got, want := p.interval(), 199*probeEach; got != want {
		t.Errorf("the interval is %s, want %s", got, want)
	}
}
