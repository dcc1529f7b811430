package timeline

import (
	"context"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/inprogress"
	"github.com/drover-dev/drover/hub/util/timelines"
)

const fieldOwner = client.FieldOwner("drover-timeline")

// Reconciler keeps the timelines of all clusters. A request has namespace and name of a cluster: those of the Cluster of
// provisioning.cattle.io and of the Cluster of Cluster API, which are the same where both exist.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Live reads ConfigMaps and Events, which are read once per start of the hub and not cached; SetupWithManager sets it.
	Live client.Reader
	// Now is the clock; SetupWithManager sets it.
	Now func() time.Time

	// indexed is set where Client reads a cache with the indexes of hub/util/operations.
	indexed bool
	// unsaved are the clusters whose timelines are to be written.
	unsaved inprogress.Counter

	mu     sync.Mutex
	states map[client.ObjectKey]*clusterState
	// ended are operations that were deleted after they had ended, by cluster, until they are recorded.
	ended map[client.ObjectKey][]operationv1.Operation
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live, r.Now, r.indexed = mgr.GetClient(), mgr.GetAPIReader(), time.Now, true
	toCluster := handler.EnqueueRequestsFromMapFunc(clusterOf)
	b := ctrl.NewControllerManagedBy(mgr).
		Named("timeline").
		Watches(&provisioningv1.Cluster{}, toCluster).
		Watches(&clusterv1.Cluster{}, toCluster).
		Watches(&rkev1.RKEControlPlane{}, toCluster).
		Watches(&clusterv1.MachineDeployment{}, toCluster).
		Watches(&clusterv1.Machine{}, toCluster).
		Watches(&rkev1.RKEBootstrap{}, toCluster).
		WithOptions(opts)
	for _, kind := range operationv1.Kinds() {
		b = b.Watches(kind, toCluster, builder.WithPredicates(r.rememberEnded()))
	}
	return b.Complete(apierrors.Requeue(r))
}

// clusterOf maps an object to the cluster that it belongs to.
func clusterOf(_ context.Context, object client.Object) []ctrl.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	switch o := object.(type) {
	case *provisioningv1.Cluster, *clusterv1.Cluster:
		name = object.GetName()
	case operationv1.Operation:
		name = o.CommonSpec().ClusterRef.Name
	case *rkev1.RKEControlPlane:
		if name == "" {
			name = o.Spec.ClusterName
		}
	case *rkev1.RKEBootstrap:
		if name == "" {
			name = o.Spec.ClusterName
		}
	}
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name}}}
}

// clusterState is what is kept in memory of a cluster between two reconciles. All of it can be lost. It needs no lock: a cluster is
// reconciled by one worker at a time.
type clusterState struct {
	// record is the timeline; nil until it was read. unsaved is what it has that was not written. saved is when it was last written, and
	// written has the digests of its parts at that time.
	record  *timelines.Record
	unsaved recorded
	saved   time.Time
	written map[int]timelines.Digest
	// seen are the conditions of which Events were created.
	seen map[conditionKey]conditionState
	// recovered is true once every change that happened before the start of the hub has its Events.
	recovered bool
	// attempted is the change whose Events could not all be written. Some of them may exist.
	attempted *change
	// logged is the last message of the provisioning log; nil until it was read.
	logged *string
	// next is the earliest time of the next reconcile; size is that of the timeline in bytes.
	next time.Time
	size int
}

func (r *Reconciler) stateOf(key client.ObjectKey) *clusterState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = map[client.ObjectKey]*clusterState{}
	}
	if r.states[key] == nil {
		r.states[key] = &clusterState{}
	}
	return r.states[key]
}

func (r *Reconciler) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved.Set(key, false)
	delete(r.states, key)
	delete(r.ended, key)
}
