package managementcluster

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
