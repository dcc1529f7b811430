package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package on one hub, which it puts into env, and returns the code to exit with. prepare is done before the first
// test. Where a test has failed, the hub's log stays, and its name is shown. So it is where the hub took longer to stop than the manager's grace
// period: that does not fail the package, whose tests are about other things, but is told with what may have kept it.
func Main(m *testing.M, opts Options, env **Env, prepare ...func(context.Context) error) (code int) {
	hub, err := Start(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the hub:", err)
		return 1
	}
	*env = hub
	defer func() {
		err := hub.Stop(code != 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the hub ended with an error:", err)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			code = 1
		}
		if code != 0 || err != nil {
			fmt.Fprintln(os.Stderr, "the hub's log is", hub.Log)
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, do := range prepare {
		if err := do(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "preparing the tests:", err)
			return 1
		}
	}
	return m.Run()
}
