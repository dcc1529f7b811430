// Package identity holds the tests of how agents introduce themselves to the hub, what they are given, and how it is taken back. They share
// one hub.
package identity

import (
	"os"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{}, &env)) }
