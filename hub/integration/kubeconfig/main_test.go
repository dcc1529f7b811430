// Package kubeconfig holds the tests of the ways to clusters: the kubeconfigs and tokens of people, and the kubeconfig Secrets of the hub's
// own controllers. They share one hub.
package kubeconfig

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

// TestMain runs the tests, or is the hub's program where a kubeconfig calls it as a plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "token" {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(testenv.Main(m, testenv.Options{}, &env))
}
