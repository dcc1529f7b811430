package bootstrap

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// metadataChanged drops updates of owned objects that are none of this controller's business: agents write their plan Secrets all the time.
var metadataChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return !maps.Equal(before.GetLabels(), after.GetLabels()) ||
			before.GetAnnotations()[corev1.ServiceAccountUIDKey] != after.GetAnnotations()[corev1.ServiceAccountUIDKey] ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			!slices.EqualFunc(before.GetOwnerReferences(), after.GetOwnerReferences(), func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
	},
}
