// Package people holds the tests of what people see of a cluster: its timeline and Events, the dry run of a change, and its status. They
// share one hub.
package people

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{}, &env)) }
