package paused

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	capipaused "sigs.k8s.io/cluster-api/util/paused"
)

// EnsureCondition sets the condition Paused of an object and returns whether the object is paused, and whether the reconcile has to end
// since the condition has changed, as Cluster API's EnsurePausedCondition does. cluster is nil for an object that belongs to none yet.
//
// An object that has no such condition yet, and is not paused, costs no write: the condition is only set on the object, for the write at
// the end of the reconcile. Create the patch.Helper before, and let it own the condition.
func EnsureCondition(ctx context.Context, c client.Client, cluster *clusterv1.Cluster, object capipaused.ConditionSetter) (
	isPaused, changed bool, err error,
) {
	inPausedCluster := cluster != nil && annotations.IsPaused(cluster, object)
	if inPausedCluster || annotations.HasPaused(object) || conditions.Has(object, clusterv1.PausedCondition) {
		return capipaused.EnsurePausedCondition(ctx, c, cluster, object)
	}
	conditions.Set(object, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.NotPausedReason})
	return false, false, nil
}
