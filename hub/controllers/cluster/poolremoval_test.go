package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
)

// TestPoolThatTheCacheHasNotSeen: a MachineDeployment goes with all its machines, and only where the Cluster as it is now has no such pool.
func TestPoolThatTheCacheHasNotSeen(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", Generation: 2}}
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod-new",
		Labels: map[string]string{rkev1.MachinePoolNameLabel: "new"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment).Build()
	r := &Reconciler{Client: c, Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()}
	for _, generation := range []int64{1, 2} {
		cached, want := cluster.DeepCopy(), generation == 1
		cached.Generation = generation
		if err := r.removePool(t.Context(), cached, deployment); err != nil {
			t.Fatal(err)
		}
		there, err := objects.Get(t.Context(), c, client.ObjectKeyFromObject(deployment), &clusterv1.MachineDeployment{})
		if err != nil || there != want {
			t.Errorf("generation %d: the MachineDeployment is there: %v (%v)", generation, there, err)
		}
	}
}
