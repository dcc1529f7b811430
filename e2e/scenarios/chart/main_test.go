//go:build e2e

package chart

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// shared is the lab of all scenarios, complete before the first one runs.
var shared suite.Suite

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &shared, "chart", checkPrograms, pushHub)) }

// checkPrograms makes sure of what these scenarios need beside what every lab does.
func checkPrograms(_ context.Context, l *lab.Lab) error {
	for _, name := range []string{"helm", "build-images", "kubectl-1.36"} {
		if _, err := os.Stat(bin(l, name)); err != nil {
			return fmt.Errorf("bin/%[1]s is not there: run make bin/%[1]s first", name)
		}
	}
	return nil
}
