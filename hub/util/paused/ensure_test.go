package paused

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
)

// TestEnsureCondition: only a change of the condition is a write of its own, and ends the reconcile.
func TestEnsureCondition(t *testing.T) {
	pausedCluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}
	annotation := map[string]string{clusterv1.PausedAnnotation: ""}
	condition := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: clusterv1.PausedCondition, Status: status, Reason: reason, Message: message}}
	}
	wasPaused := condition(metav1.ConditionTrue, clusterv1.PausedReason, "Cluster spec.paused is set to true")
	for name, tc := range map[string]struct {
		cluster           *clusterv1.Cluster
		annotations       map[string]string
		before            []metav1.Condition
		isPaused, changed bool
		writes            int
	}{
		"new":                         {cluster: &clusterv1.Cluster{}},
		"new, of no Cluster yet":      {},
		"new, of a paused Cluster":    {cluster: pausedCluster, isPaused: true, changed: true, writes: 1},
		"new and paused":              {annotations: annotation, isPaused: true, changed: true, writes: 1},
		"not paused, as before":       {cluster: &clusterv1.Cluster{}, before: condition(metav1.ConditionFalse, clusterv1.NotPausedReason, "")},
		"not paused any more":         {before: wasPaused, changed: true, writes: 1},
		"paused, which it was before": {cluster: pausedCluster, before: wasPaused, isPaused: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := clusterv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			object := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", Annotations: tc.annotations}}
			object.Status.Conditions = slices.Clone(tc.before)
			writes := 0
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).
				WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
					p client.Patch, opts ...client.SubResourcePatchOption,
				) error {
					writes++
					return c.SubResource(sub).Patch(ctx, o, p, opts...)
				}}).Build()
			isPaused, changed, err := EnsureCondition(t.Context(), c, tc.cluster, object)
			if err != nil || isPaused != tc.isPaused || changed != tc.changed || writes != tc.writes {
				t.Errorf("paused %t, changed %t, %d writes, error %v", isPaused, changed, writes, err)
			}
			if conditions.IsTrue(object, clusterv1.PausedCondition) != tc.isPaused || !conditions.Has(object, clusterv1.PausedCondition) {
				t.Errorf("the conditions are %v", object.Status.Conditions)
			}
		})
	}
}
