//go:build e2e

package access

import (
	"context"
	"os"
	"testing"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// shownArguments are what programs were called with.
var shownArguments *suite.Arguments

// shared is the lab of all scenarios, complete before the first one runs.
var shared = suite.Suite{Prepare: func(ctx context.Context, l *lab.Lab) error {
	shownArguments = suite.CollectArguments()
	return l.OpenLine(ctx)
}}

func TestMain(m *testing.M) {
	images := func(ctx context.Context, l *lab.Lab) error { return l.PushToolbox(ctx) }
	os.Exit(suite.Main(m, &shared, "access", images))
}
