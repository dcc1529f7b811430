// Package pools holds the tests of machine pools on a whole hub, with Cluster API's own controllers and providers that are played by the
// test: definitions in the shapes of real ones, and a loop that says what a provider says.
package pools

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if env, err = testenv.Start(testenv.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "starting the hub:", err)
		return 1
	}
	defer func() {
		if err := env.Stop(code != 0); err != nil {
			fmt.Fprintln(os.Stderr, "the hub ended with an error:", err)
			code = 1
		}
		if code != 0 {
			fmt.Fprintln(os.Stderr, "the hub's log is", env.Log)
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := installProviders(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "installing the providers:", err)
		return 1
	}
	return m.Run()
}
