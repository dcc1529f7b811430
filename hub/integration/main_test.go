// Package integration holds the tests that need a whole hub: one is started for all of them. They are in one package so that Kubernetes
// is linked once. Each test works in namespaces of its own, and leaves the hub as it found it.
package integration

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

// TestMain runs the tests, or is the hub's program where a Job of a node driver or ssh has it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "node-driver" || os.Args[1] == "machine") {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if dataDir := os.Getenv(childEnv); dataDir != "" {
		return runChild(dataDir)
	}
	return testenv.Main(m, testenv.Options{NodeDriverImage: "hub"}, &env, runJobs)
}

func newNamespace(t *testing.T) string {
	t.Helper()
	return env.Namespace(t)
}
