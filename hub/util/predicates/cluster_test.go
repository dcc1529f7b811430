package predicates

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestClusterChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster)
		want   bool
	}{
		"a condition": {change: func(c *clusterv1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue}}
		}},
		"how many workers are ready": {change: func(c *clusterv1.Cluster) {
			c.Status.Workers = &clusterv1.WorkersStatus{ReadyReplicas: ptr.To[int32](7)}
		}},
		"its phase":         {change: func(c *clusterv1.Cluster) { c.Status.Phase = string(clusterv1.ClusterPhaseProvisioned) }},
		"its specification": {want: true, change: func(c *clusterv1.Cluster) { c.Generation++ }},
		"an annotation": {want: true,
			change: func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
		"a label": {want: true, change: func(c *clusterv1.Cluster) { c.Labels = map[string]string{"a": "b"} }},
		"its owner": {want: true,
			change: func(c *clusterv1.Cluster) { c.OwnerReferences = []metav1.OwnerReference{{UID: "other"}} }},
		"it is deleted": {want: true, change: func(c *clusterv1.Cluster) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1,
				0)}
		}},
		"its infrastructure is there": {want: true,
			change: func(c *clusterv1.Cluster) { c.Status.Initialization.InfrastructureProvisioned = ptr.To(true) }},
		"its API is there": {want: true,
			change: func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = ptr.To(true) }},
		"its API is known not to be so": {change: func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = ptr.To(false) }},
	} {
		before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Generation: 1, ResourceVersion: "1"}}
		after := before.DeepCopy()
		after.ResourceVersion = "2"
		tc.change(after)
		if got := ClusterChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
