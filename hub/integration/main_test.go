// Package integration holds the tests that need a whole hub: one is started for all of them. They are in one package so that Kubernetes
// is linked once. Each test works in namespaces of its own, and leaves the hub as it found it.
package integration

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
	if dataDir := os.Getenv(childEnv); dataDir != "" {
		return runChild(dataDir)
	}
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

func newNamespace(t *testing.T) string {
	t.Helper()
	return env.Namespace(t)
}
