// Package predicates has the predicates that several controllers share. A predicate drops events that decide nothing, before they are mapped to
// requests: an event of a Cluster may be mapped to each of its machines.
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

// ClusterChanged drops updates of what Cluster API counts in the status of a Cluster: its replicas and conditions change with every machine. It
// lets through what the hub's controllers look at, which are the metadata, the specification, and how far the cluster is initialized.
var ClusterChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*clusterv1.Cluster)
	after, ok2 := e.ObjectNew.(*clusterv1.Cluster)
	return !ok || !ok2 || MetadataChanged(before, after) || initialization(before) != initialization(after)
}}

// MetadataChanged tells whether the specification has changed, as the generation tells, or metadata that people and controllers write.
func MetadataChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
}

func initialization(cluster *clusterv1.Cluster) (is [2]bool) {
	i := cluster.Status.Initialization
	return [2]bool{ptr.Deref(i.InfrastructureProvisioned, false), ptr.Deref(i.ControlPlaneInitialized, false)}
}
