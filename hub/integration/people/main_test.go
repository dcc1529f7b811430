// Package people holds the tests of what people see of a cluster: its timeline and Events, the dry run of a change, and its status. They
// share one hub.
package people

import (
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
	return m.Run()
}
