package testenv

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package on one hub, which it puts into env, and returns the code to exit with. prepare is done before the first
// test. Where a test has failed, or the hub did not end as it should, the hub's log stays, and its name is shown.
func Main(m *testing.M, opts Options, env **Env, prepare ...func(context.Context) error) (code int) {
	hub, err := Start(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the hub:", err)
		return 1
	}
	*env = hub
	defer func() {
		if err := hub.Stop(code != 0); err != nil {
			fmt.Fprintln(os.Stderr, "the hub ended with an error:", err)
			code = 1
		}
		if code != 0 {
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
	runManyAtOnce()
	return m.Run()
}

// atOnce is how many tests run side by side on a hub: most of the time each waits for some controller.
const atOnce = "8"

// runManyAtOnce is for who has not said otherwise: Go runs as many as there are processors.
func runManyAtOnce() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", atOnce)
	}
}
