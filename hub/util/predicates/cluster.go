// Package predicates has the predicates that several controllers share. A predicate drops events that change no decision before they are
// mapped to requests: an event of a Cluster may be mapped to each of its machines.
package predicates

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// OnUpdate passes those updates of a T for which changed returns true, and all other events.
func OnUpdate[T client.Object](changed func(before, after T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || changed(before, after)
	}}
}

// ClusterChanged passes updates of a Cluster's metadata, specification and status.initialization. It drops those of replicas and
// conditions, which change with every machine.
var ClusterChanged = OnUpdate(func(before, after *clusterv1.Cluster) bool {
	return MetadataChanged(before, after) || initialization(before) != initialization(after)
})

// MetadataChanged reports whether the specification (by its generation) has changed, or metadata that people and controllers write.
func MetadataChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
}

func initialization(cluster *clusterv1.Cluster) [2]bool {
	i := cluster.Status.Initialization
	return [2]bool{ptr.Deref(i.InfrastructureProvisioned, false), ptr.Deref(i.ControlPlaneInitialized, false)}
}
