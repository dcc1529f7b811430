// Package integration holds the tests that need a whole hub: one is started for all of them. They are in one package so that Kubernetes
// is linked once. Each test works in namespaces of its own, and leaves the hub as it found it.
package integration

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if dataDir := os.Getenv(childEnv); dataDir != "" {
		return runChild(dataDir)
	}
	return testenv.Main(m, testenv.Options{}, &env)
}

func newNamespace(t *testing.T) string {
	t.Helper()
	return env.Namespace(t)
}
