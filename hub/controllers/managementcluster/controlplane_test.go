package managementcluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

func TestReconcileForgetsDeletedControlPlane(t *testing.T) {
	fakeclient.CheckForget(t, func(c client.WithWatch, cache *ssa.Cache) reconcile.Reconciler {
		return &controlPlaneReconciler{client: c, live: c, ssa: cache}
	}, rkev1.AddToScheme, managementv3.AddToScheme)
}

// TestStandaloneClusterName: the control plane of a Cluster of provisioning.cattle.io, which cleans up for itself, stands for no cluster.
func TestStandaloneClusterName(t *testing.T) {
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "servers",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "cluster"}}}
	if got := standaloneClusterName(controlPlane); got != "cluster" {
		t.Errorf("got %q for one that was written for Cluster API", got)
	}
	controlPlane.Spec.ManagementClusterName = "c-m-abcdefgh"
	if got := standaloneClusterName(controlPlane); got != "" {
		t.Errorf("got %q for one with a management Cluster in its spec", got)
	}
}
