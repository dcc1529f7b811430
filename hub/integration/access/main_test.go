// Package access holds the tests of how people and programs reach clusters through the hub: with real users and rights of the management
// cluster, through a real tunnel, to a real Kubernetes API. They share one hub, whose API server also plays that of every cluster.
package access

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{}, &env)) }
