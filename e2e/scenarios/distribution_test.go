//go:build e2e

package scenarios

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// distributionOf is what a cluster runs.
func distributionOf(t *testing.T, key client.ObjectKey) lab.Distribution {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	return lab.DistributionOf(cluster.Spec.KubernetesVersion)
}
