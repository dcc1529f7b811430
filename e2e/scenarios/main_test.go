//go:build e2e

package scenarios

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

var shared suite.Suite

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &shared, "e2e")) }
