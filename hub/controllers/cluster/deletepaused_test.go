package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestDeletionHeldByAPause: a deletion names the object whose pause it waits for, where that is not the Cluster.
func TestDeletionHeldByAPause(t *testing.T) {
	paused := map[string]string{clusterv1.PausedAnnotation: ""}
	for name, tt := range map[string]struct {
		controlPlane, machine map[string]string
		reason, says          string
	}{
		"nothing":       {reason: "WaitingForClusterAPI", says: "machines left: m"},
		"control plane": {controlPlane: paused, reason: "ClusterPaused", says: "RKEControlPlane one to be unpaused"},
		"machine":       {machine: paused, reason: "WaitingForClusterAPI", says: "held by their annotation cluster.x-k8s.io/paused: m"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := testCluster()
			meta := func(name string, annotations map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
				return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, UID: "u", Annotations: annotations, OwnerReferences: owners,
					Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name}}
			}
			capi := capiCluster(cluster)
			capi.UID, capi.Finalizers = "u", []string{clusterv1.ClusterFinalizer}
			controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta(cluster.Name, tt.controlPlane,
				metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: capi.Name, UID: capi.UID})}
			c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)).
				WithObjects(capi, controlPlane, &clusterv1.Machine{ObjectMeta: meta("m", tt.machine)}).Build()
			waiting, err := (&Reconciler{Client: c, Live: c}).removeClusterAPI(t.Context(), &scope{cluster: cluster})
			if err != nil || waiting == nil || waiting.Reason != tt.reason || !strings.Contains(waiting.Message, tt.says) {
				t.Errorf("it waits for %+v (%v)", waiting, err)
			}
			if tt.machine == nil && waiting != nil && strings.Contains(waiting.Message, "held by") {
				t.Errorf("it says %q", waiting.Message)
			}
		})
	}
}
