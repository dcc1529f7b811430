//go:build e2e && full

package upgrade

import (
	"context"
	"os"
	"testing"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

var shared suite.Suite

func TestMain(m *testing.M) {
	next := func(ctx context.Context, l *lab.Lab) error { return l.Release(ctx, lab.NextVersion) }
	os.Exit(suite.Main(m, &shared, "upgrade", next))
}
