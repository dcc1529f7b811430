// Package paused has the predicate by which controllers resume what came due while a Cluster or object was paused. What paused means is
// Cluster API's: spec.paused of the Cluster, or the annotation cluster.x-k8s.io/paused of the object itself. That of a Cluster pauses none
// of its objects.
package paused

import (
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
)

// Unpaused passes updates by which an object is no longer paused: by its annotation or, for a Cluster, by its specification.
var Unpaused = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return isPaused(e.ObjectOld) && !isPaused(e.ObjectNew) },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func isPaused(object client.Object) bool {
	if cluster, ok := object.(*clusterv1.Cluster); ok {
		return ptr.Deref(cluster.Spec.Paused, false)
	}
	return annotations.HasPaused(object)
}
