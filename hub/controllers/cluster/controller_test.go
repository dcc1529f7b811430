package cluster

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

func TestReconcileForgetsDeletedCluster(t *testing.T) {
	fakeclient.CheckForget(t, func(c client.WithWatch, cache *ssa.Cache) reconcile.Reconciler {
		return &Reconciler{Client: c, Live: c, ssa: cache}
	}, provisioningv1.AddToScheme, managementv3.AddToScheme)
}
