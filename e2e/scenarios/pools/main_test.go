//go:build e2e

package pools

import (
	"context"
	"os"
	"testing"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

const namespace = "fleet-default"

// shared is the lab of all scenarios, complete before the first one runs.
var shared suite.Suite

func TestMain(m *testing.M) { os.Exit(suite.Main(m, &shared, "pools", startProvider)) }

func startProvider(ctx context.Context, l *lab.Lab) error {
	hub, err := l.HubClient()
	if err != nil {
		return err
	}
	return l.StartProvider(ctx, hub)
}
