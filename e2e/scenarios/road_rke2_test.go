//go:build e2e && full

package scenarios

import (
	"testing"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestRoadRKE2 goes the road of TestRoad with a cluster of RKE2.
func TestRoadRKE2(t *testing.T) {
	suite.Step(t, "the installer image of RKE2 is in the registry", func(t *testing.T) {
		suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	})
	road(t, lab.RKE2, "roadr")
}
