package paused

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestUnpaused(t *testing.T) {
	annotated := metav1.ObjectMeta{Annotations: map[string]string{clusterv1.PausedAnnotation: ""}}
	for name, tc := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a Cluster is unpaused": {&clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}, &clusterv1.Cluster{},
			true},
		"a Cluster is paused": {&clusterv1.Cluster{}, &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}},
			false},
		"a Cluster was never paused": {&clusterv1.Cluster{}, &clusterv1.Cluster{}, false},
		"a Cluster with the annotation is unpaused": {
			&clusterv1.Cluster{ObjectMeta: annotated, Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}},
			&clusterv1.Cluster{ObjectMeta: annotated}, true},
		"a Cluster loses the annotation":      {&clusterv1.Cluster{ObjectMeta: annotated}, &clusterv1.Cluster{}, false},
		"a Machine loses the annotation":      {&clusterv1.Machine{ObjectMeta: annotated}, &clusterv1.Machine{}, true},
		"a Machine that keeps the annotation": {&clusterv1.Machine{ObjectMeta: annotated}, &clusterv1.Machine{ObjectMeta: annotated}, false},
	} {
		if got := Unpaused.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
