// Package access holds the tests of who gets into the hub and its clusters, and how: agents and machines that introduce themselves,
// clusters that their agent connects, and people and programs with kubeconfigs, tokens and rights of the management cluster, through a real
// tunnel to a real Kubernetes API. They share one hub, whose API server also plays that of clusters, and a second API server that plays an
// imported one.
package access

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/testenv"
)

var (
	// env is the hub that all tests share.
	env *testenv.Env
	// downstream is the API server of the clusters that the agents of the tests of connections speak for.
	downstream *embedded.Server
)

// TestMain runs the tests, or is the hub's program where a kubeconfig calls it as a plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "token" {
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(testenv.Main(m, testenv.Options{}, &env, cacheTokensApart, startDownstream))
}

func startDownstream(ctx context.Context) (err error) {
	downstream, err = embedded.Start(ctx, embedded.Options{DataDir: filepath.Join(env.Dir, "downstream"), UnsafeNoFsync: true})
	return err
}

// cacheTokensApart keeps the tokens that the hub's program caches out of the home folder.
func cacheTokensApart(context.Context) error {
	return os.Setenv("XDG_CACHE_HOME", filepath.Join(env.Dir, "cache"))
}
