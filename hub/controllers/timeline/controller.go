package timeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
)

const fieldOwner = client.FieldOwner("drover-timeline")

// Reconciler keeps the timelines of all clusters. A request is namespace and name of a cluster: that of the provisioning Cluster and of the
// Cluster of Cluster API, which are the same where there are both.
type Reconciler struct {
	// Client writes, and reads from the cache. The manager's, where unset.
	Client client.Client
	// Live reads ConfigMaps and Events, which are read once per start of the hub and are not worth a cache. The manager's, where unset.
	Live client.Reader
	// Now is the clock; time.Now where unset.
	Now func() time.Time

	mu       sync.Mutex
	memories map[client.ObjectKey]*memory
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	toCluster := handler.EnqueueRequestsFromMapFunc(clusterOf)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("timeline").
		Watches(&provisioningv1.Cluster{}, toCluster).
		Watches(&clusterv1.Cluster{}, toCluster).
		Watches(&rkev1.RKEControlPlane{}, toCluster).
		Watches(&clusterv1.MachineDeployment{}, toCluster).
		Watches(&clusterv1.Machine{}, toCluster).
		Watches(&rkev1.RKEBootstrap{}, toCluster).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the timeline controller: %w", err)
	}
	return nil
}

// clusterOf names the cluster that an object belongs to.
func clusterOf(_ context.Context, object client.Object) []ctrl.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	switch o := object.(type) {
	case *provisioningv1.Cluster, *clusterv1.Cluster:
		name = object.GetName()
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

// memory is what the process keeps of a cluster between two passes. All of it can be lost.
type memory struct {
	// record is the timeline as it was last written; nil until it was read.
	record *Record
	// seen are the conditions that were told; nil before the first pass.
	seen map[conditionKey]state
	// logged is the last message of the provisioning log; nil until it was read.
	logged *string
	// next is when the next pass may be made; size is how many bytes the timeline has.
	next time.Time
	size int
}

// memoryOf returns the memory of a cluster. One pass at a time works on a cluster, so that it needs no lock of its own.
func (r *Reconciler) memoryOf(key client.ObjectKey) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[client.ObjectKey]*memory{}
	}
	if r.memories[key] == nil {
		r.memories[key] = &memory{}
	}
	return r.memories[key]
}

func (r *Reconciler) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}
