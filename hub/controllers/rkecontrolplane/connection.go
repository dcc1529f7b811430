package rkecontrolplane

import (
	"bytes"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// connectTimeout is how long a failed attempt of ClusterCache to connect may have taken.
const connectTimeout = 15 * time.Second

// reconnect makes ClusterCache connect again if its connection is not the one of the kubeconfig, or if its last attempt failed before the
// endpoint of the kubeconfig was available. ClusterCache alone would wait for its next attempt.
func (r *Reconciler) reconnect(ctx context.Context, s *scope, found *corev1.Secret) {
	if r.Reconnect == nil || r.ClusterCache == nil || s.cluster == nil || !isInitialized(s.controlPlane) {
		return
	}
	raw := found.Data[secret.KubeconfigDataName]
	want, err := kubeconfig.RESTConfig(raw)
	if err != nil {
		return
	}
	key := client.ObjectKeyFromObject(s.cluster)
	if have, err := r.ClusterCache.GetRESTConfig(ctx, key); err == nil {
		r.reconnected.Delete(key)
		// Cluster API has another host for the cluster that it runs in, and a CAFile.
		otherHost := have.Host != want.Host && have.CAFile == ""
		if otherHost || have.BearerToken != want.BearerToken || !bytes.Equal(have.CertData, want.CertData) {
			r.Reconnect(key)
		}
		return
	}
	available := lastSwitched(found)
	if r.Access.UsesTunnel(raw, s.management) {
		if since := r.agents.connectedSince(s.management); since.After(available) {
			available = since
		}
	}
	last := r.ClusterCache.GetHealthCheckingState(ctx, key).LastProbeTime
	if available.IsZero() || last.IsZero() || last.After(available.Add(connectTimeout)) {
		return
	}
	// Once: an attempt that fails after that has failed at the present endpoint.
	if requested, _ := r.reconnected.Swap(key, available); requested != available {
		r.Reconnect(key)
	}
}

// reconnectRestored makes ClusterCache connect again when a restored server has started. A watch that goes on from before gets nothing
// until etcd, whose data is that of the snapshot, has come to its resource version once more: the API server takes one that is yet to come
// for one after which nothing has happened. A server that restarts in a few seconds does not end the connection.
func (r *Reconciler) reconnectRestored(s *scope) {
	const starts = operationv1.StepPostRestorePodCleanup
	_, restores := s.operation.(*operationv1.ETCDSnapshotRestore)
	if restores && r.Reconnect != nil && s.cluster != nil && s.observedOperation.CommonStatus().Step == starts &&
		s.operation.CommonStatus().Step != starts {
		r.Reconnect(client.ObjectKeyFromObject(s.cluster))
	}
}

// agentSessions records since when agents are connected, as seen by this process. The condition Connected is no substitute: it stays true
// while a hub that was started waits for its agents, and an attempt to connect in that time says nothing about the time after.
type agentSessions struct {
	connected func(management string) bool
	reader    client.Reader
	now       func() time.Time

	mu    sync.Mutex
	since map[string]time.Time
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// start is a source.Func: it enqueues the RKEControlPlane of a cluster when its agent connects or disconnects.
func (a *agentSessions) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = queue
	return nil
}

// changed is called after the first session of a key began, or its last one ended. Keys are management Clusters and, for agents of
// machines, others.
func (a *agentSessions) changed(key string) {
	connected := a.connected(key)
	a.mu.Lock()
	if connected {
		a.since[key] = a.now()
	} else {
		delete(a.since, key)
	}
	queue := a.queue
	a.mu.Unlock()
	if queue == nil {
		return
	}
	ctx := context.Background()
	management := &managementv3.Cluster{}
	if a.reader.Get(ctx, client.ObjectKey{Name: key}, management) != nil {
		return
	}
	for _, request := range mapfuncs.OfCluster(ctx, a.reader, ownership.Key(management), mapfuncs.ClusterToControlPlane) {
		queue.Add(request)
	}
}

// connectedSince is since when the agent of a cluster is connected; zero where it is not, or was before this process started.
func (a *agentSessions) connectedSince(management string) time.Time {
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[management]
}
