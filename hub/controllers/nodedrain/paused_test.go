package nodedrain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestPausedControlPlane: nothing is drained while the RKEControlPlane is paused by its annotation.
func TestPausedControlPlane(t *testing.T) {
	w := newWorld(t, pod("web", nil))
	asked := w.ask(rkev1.DrainOptions{Enabled: true})
	cluster := &clusterv1.Cluster{}
	if err := w.hub.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c"}, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
		Name: "c"}
	if err := w.hub.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "c", Annotations: map[string]string{clusterv1.PausedAnnotation: ""},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))},
	}}
	if err := w.hub.Create(t.Context(), controlPlane); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if w.cordoned() || len(w.annotations()) != 1 {
		t.Errorf("paused: cordoned %v, %v", w.cordoned(), w.annotations())
	}
	controlPlane.Annotations = nil
	if err := w.hub.Update(t.Context(), controlPlane); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)
}
