// Package pools holds the tests of machine pools on a whole hub, with Cluster API's own controllers and providers that are played by the
// test: definitions in the shapes of real ones, and a loop that says what a provider says.
package pools

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{}, &env, installProviders)) }
