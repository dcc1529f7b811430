// Package preterminatehook keeps the pre-terminate hook of Machines with etcd (Cluster API's
// pre-terminate.delete.hook.machine.cluster.x-k8s.io), so that no deletion costs etcd its quorum: it sets the hook on every etcd machine,
// and removes it from a deleted one once the cluster has removed its etcd member. The removal is requested by an annotation of the Node,
// and done by k3s and RKE2.
//
// Requests are Clusters, not Machines: the members of one cluster are removed one after the other.
package preterminatehook

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/hub/util/predicates"
)

const (
	controllerName = "preterminatehook"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
	// coalesceTime is how long a reconcile waits for changes of more machines, since it reads all of a cluster.
	coalesceTime = 500 * time.Millisecond
)

// Reconciler reconciles the etcd members of Clusters of Cluster API.
type Reconciler struct {
	// Client reads Clusters and Machines and writes Machines.
	Client client.Client
	// Cache reads plan Secrets with their content.
	Cache client.Reader
	// Live reads past the cache, before a removal is requested.
	Live client.Reader
	// ClusterCache holds the connections to the clusters; required.
	ClusterCache clustercache.ClusterCache
	// Now is the clock.
	Now func() time.Time

	controller controller.Controller
	// removing are the Clusters (client.ObjectKey) with a Machine that waits for the removal of its member, and the time.Time of their last
	// refresh by another connection; zero for never. Only they reconcile on every report of an agent, and on changes of machines without etcd.
	removing sync.Map
}

// SetupWithManager registers the controller, with the clients of the manager. Nodes are watched per cluster, while one of its members is
// being removed.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Live, r.Now = mgr.GetClient(), mgr.GetCache(), mgr.GetAPIReader(), time.Now
	toCluster := mapfuncs.Coalesced(coalesceTime, r.machineToCluster)
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&clusterv1.Machine{}, toCluster, builder.WithPredicates(machineChanged)).
		Watches(&rkev1.RKEBootstrap{}, toCluster, builder.WithPredicates(bootstrapChanged)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(controlPlaneToCluster), builder.WithPredicates(controlPlaneChanged)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.planSecretToCluster)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, func(_ context.Context, o client.Object) []ctrl.Request {
			return r.ifRemoving(client.ObjectKeyFromObject(o))
		})).
		WithOptions(opts).
		Build(apierrors.Requeue(r))
	return err
}

// machineToCluster maps a Machine, or an RKEBootstrap, to its Cluster if it is of a machine with etcd, or if the Cluster waits for a
// removal: workers change nothing else, and a reconcile reads all of them.
func (r *Reconciler) machineToCluster(ctx context.Context, o client.Object) []ctrl.Request {
	cluster := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[clusterv1.ClusterNameLabel]}
	machine, ok := o.(*clusterv1.Machine)
	if o.GetLabels()[rkev1.EtcdRoleLabel] == "true" || ok && (hasHook(machine) || r.hasEtcdBootstrap(ctx, machine)) {
		return mapfuncs.Request(cluster)
	}
	return r.ifRemoving(cluster)
}

// hasEtcdBootstrap reports whether the RKEBootstrap of a Machine has the label of the role. One that the cache does not have yet is mapped
// when it comes, with the cluster's label, or when Cluster API gives it that.
func (r *Reconciler) hasEtcdBootstrap(ctx context.Context, machine *clusterv1.Machine) bool {
	ref, bootstrap := machine.Spec.Bootstrap.ConfigRef, &rkev1.RKEBootstrap{}
	if !rkev1.Refers(ref, "RKEBootstrap") {
		return false
	}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}
	found, err := objects.Get(ctx, r.Cache, key, bootstrap, client.UnsafeDisableDeepCopy)
	return err != nil || found && bootstrap.Labels[rkev1.EtcdRoleLabel] == "true"
}

// controlPlaneToCluster maps an RKEControlPlane to the Cluster that owns it.
func controlPlaneToCluster(_ context.Context, o client.Object) []ctrl.Request {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == "Cluster" && ref.APIVersion == clusterv1.GroupVersion.String() {
			return mapfuncs.Request(client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name})
		}
	}
	return nil
}

// planSecretToCluster maps a plan Secret to its Cluster if that waits for a removal: agents update their Secrets all the time.
func (r *Reconciler) planSecretToCluster(_ context.Context, o client.Object) []ctrl.Request {
	if !plansecrets.IsPlanSecret(o) {
		return nil
	}
	return r.ifRemoving(client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[rkev1.ClusterNameLabel]})
}

func (r *Reconciler) ifRemoving(cluster client.ObjectKey) []ctrl.Request {
	if _, removing := r.removing.Load(cluster); !removing {
		return nil
	}
	return mapfuncs.Request(cluster)
}

var (
	machineChanged = predicates.OnUpdate(func(before, after *clusterv1.Machine) bool {
		deleting := func(m *clusterv1.Machine) string { return conditions.GetReason(m, clusterv1.MachineDeletingCondition) }
		return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
			before.Status.NodeRef != after.Status.NodeRef || deleting(before) != deleting(after)
	})
	// Whose they are is in their owner references.
	bootstrapChanged = predicates.OnUpdate(func(before, after *rkev1.RKEBootstrap) bool {
		return predicates.MetadataChanged(before, after)
	})
	controlPlaneChanged = predicates.OnUpdate(func(before, after *rkev1.RKEControlPlane) bool {
		return predicates.MetadataChanged(before, after)
	})
	nodeChanged = predicates.OnUpdate(machinestate.NodeDiffers)
)
