//go:build e2e && full

package access

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// insideRKE2 runs its API server as a static pod.
var insideRKE2 = &closedCluster{distribution: lab.RKE2, key: client.ObjectKey{Namespace: namespace, Name: "insider"}}

// TestAccessRKE2 does everything of TestAccess with a cluster of RKE2.
func TestAccessRKE2(t *testing.T) {
	suite.Step(t, "the installer image of RKE2 is in the registry", func(t *testing.T) {
		suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	})
	access(t, insideRKE2)
}
