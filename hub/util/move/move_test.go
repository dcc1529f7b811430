package move

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestCleanup: only what is moved to another hub is recorded, under the name of its cluster.
func TestCleanup(t *testing.T) {
	leaving := map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		cluster     string
		want        string
	}{
		{name: "deleted", cluster: "cluster"},
		{name: "moved", annotations: leaving, cluster: "cluster", want: "cluster"},
		{name: "stands for no cluster", annotations: leaving},
	} {
		t.Run(tt.name, func(t *testing.T) {
			controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "servers", Annotations: tt.annotations}}
			m := Cleanup{ClusterName: func(client.Object) string { return tt.cluster }}
			if !m.Predicate().Delete(event.DeleteEvent{Object: controlPlane}) {
				t.Error("the deletion of an object does not reach the controller")
			}
			got, _ := m.moved.Load(client.ObjectKey{Namespace: "ns", Name: "servers"})
			if name, _ := got.(string); name != tt.want {
				t.Errorf("the moved cluster is %q, want %q", name, tt.want)
			}
		})
	}
}
