// Package connection holds the tests of clusters that connect to the hub by their agent. They share one hub, and one API server that plays
// the cluster.
package connection

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/hub/embedded"
	"github.com/drover-dev/drover/hub/testenv"
)

var (
	// env is the hub that all tests share.
	env *testenv.Env
	// downstream is the API server of the cluster that the agents of all tests speak for.
	downstream *embedded.Server
)

func TestMain(m *testing.M) {
	code := testenv.Main(m, testenv.Options{}, &env, startDownstream)
	os.Exit(code)
}

func startDownstream(ctx context.Context) (err error) {
	downstream, err = embedded.Start(ctx, embedded.Options{DataDir: filepath.Join(env.Dir, "downstream"), UnsafeNoFsync: true})
	return err
}
