// Package pause has what controllers watch so that they go on with what came due while something was paused. It makes no requests.
package pause

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
)

// Ends lets through the moment in which an object is no longer paused, by its annotation or, for a Cluster, by its specification.
var Ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return isPaused(e.ObjectOld) && !isPaused(e.ObjectNew) },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func isPaused(object client.Object) bool {
	if cluster, ok := object.(*clusterv1.Cluster); ok {
		return annotations.IsPaused(cluster, cluster)
	}
	return annotations.HasPaused(object)
}
