package rkebootstrap

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// metadataChanged drops updates of the content of owned objects: agents write their plan Secrets all the time. It drops what was created,
// too, except for tokens that are complete: the reconcile that creates an object goes on with it.
var metadataChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetAnnotations()[corev1.ServiceAccountUIDKey] != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return !maps.Equal(before.GetLabels(), after.GetLabels()) ||
			before.GetAnnotations()[corev1.ServiceAccountUIDKey] != after.GetAnnotations()[corev1.ServiceAccountUIDKey] ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			!slices.EqualFunc(before.GetOwnerReferences(), after.GetOwnerReferences(), func(a,
				b metav1.OwnerReference) bool {
				return a.UID == b.UID
			})
	},
}

// updated is a predicate that drops updates in which nothing relevant has changed.
func updated[T client.Object](changed func(before, after T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || changed(before, after)
	}}
}

// Most changes of a status are not relevant here.
var (
	bootstrapChanged = updated(func(before, after *rkev1.RKEBootstrap) bool {
		return predicates.MetadataChanged(before, after) ||
			conditions.IsTrue(before, clusterv1.PausedCondition) != conditions.IsTrue(after, clusterv1.PausedCondition) || !ready(after)
	})
	machineChanged = updated(func(before, after *clusterv1.Machine) bool {
		return predicates.MetadataChanged(before, after) || before.Status.NodeRef.IsDefined() != after.Status.NodeRef.IsDefined() ||
			conditions.GetReason(before, rkev1.PlanAppliedCondition) != conditions.GetReason(after, rkev1.PlanAppliedCondition)
	})
)

// ready returns whether the status is complete; one that was lost is written again.
func ready(bootstrap *rkev1.RKEBootstrap) bool {
	return bootstrap.Status.DataSecretName != nil && conditions.IsTrue(bootstrap, rkev1.ReadyCondition)
}
