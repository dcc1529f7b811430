package nodesync

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// planToBootstrap maps a plan Secret to the RKEBootstrap that owns it.
func planToBootstrap(_ context.Context, object client.Object) []ctrl.Request {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Type != rkev1.MachinePlanSecretType {
		return nil
	}
	for _, ref := range secret.OwnerReferences {
		if ref.Kind == "RKEBootstrap" {
			return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: secret.Namespace, Name: ref.Name}}}
		}
	}
	return nil
}

// clusterToBootstraps maps a Cluster to all its machines, which wait for its connection or to be unpaused.
func (r *Reconciler) clusterToBootstraps(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.machinesOf(ctx, client.ObjectKeyFromObject(cluster))
}

// nodeToBootstraps maps Nodes of a cluster to their machine by an index of Cluster API: a cluster may have a thousand of each.
func (r *Reconciler) nodeToBootstraps(cluster client.ObjectKey) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []ctrl.Request {
		return r.machinesOf(ctx, cluster, client.MatchingFields{index.MachineNodeNameField: node.GetName()})
	}
}

func (r *Reconciler) machinesOf(ctx context.Context, cluster client.ObjectKey, of ...client.ListOption) []ctrl.Request {
	var machines clusterv1.MachineList
	of = append(of, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy)
	if err := r.Client.List(ctx, &machines, of...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list Machines", "Cluster", cluster)
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		requests = append(requests, mapfuncs.MachineToBootstrap(ctx, &machines.Items[i])...)
	}
	return requests
}

// nodeLabelsChanged drops all changes of plan Secrets but that of the labels of the delivered configuration.
var nodeLabelsChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[rkev1.NodeLabelsAnnotation] != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[rkev1.NodeLabelsAnnotation] != e.ObjectNew.GetAnnotations()[rkev1.NodeLabelsAnnotation]
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// nodeRefChanged lets an update through in which a Machine gets its Node, or is paused or unpaused.
var nodeRefChanged = predicates.OnUpdate(func(before, after *clusterv1.Machine) bool {
	return before.Status.NodeRef != after.Status.NodeRef || !maps.Equal(before.Annotations, after.Annotations)
})

var pauseChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.Cluster)
		after, ok2 := e.ObjectNew.(*clusterv1.Cluster)
		return ok && ok2 && ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
	},
}

// nodeChanged drops the heartbeats of kubelets.
var nodeChanged = predicates.OnUpdate(func(before, after *corev1.Node) bool {
	return !maps.Equal(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Annotations[rkev1.SyncedFromMachineAnnotation] != after.Annotations[rkev1.SyncedFromMachineAnnotation] ||
		before.Annotations[rkev1.DrainCordonedAnnotation] != after.Annotations[rkev1.DrainCordonedAnnotation]
})
