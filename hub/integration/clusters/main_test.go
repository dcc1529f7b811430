// Package clusters holds the tests of the life of a cluster on a whole hub: how machines of any infrastructure come into it and leave it,
// what its specification comes to on them, pools, control planes, what people see of all that, and its move to another hub. They share one
// hub, which has release data from a file; the infrastructure, its providers and the agents are played.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	hubprovider "github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share, releaseData the file with its release data.
var (
	env         *testenv.Env
	releaseData string
)

func TestMain(m *testing.M) {
	switch mode := os.Getenv(secondHubEnv); mode {
	case "":
	case string(hubprovider.ControlPlane):
		os.Exit(runSecondHub())
	default:
		os.Exit(runProvider(hubprovider.Provider(mode)))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "drover-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		releaseData = filepath.Join(dir, "data.json")
		err = writeReleaseData(`{"later": {"type": "array"}}`)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writing release data:", err)
		return 1
	}
	return testenv.Main(m, testenv.Options{ReleaseData: releaseData}, &env, installKinds, installProviders)
}

// writeReleaseData writes release data for the version of the test clusters, with these arguments of servers.
func writeReleaseData(serverArgs string) error {
	content := `{"k3s": {"releases": [{"version": "v1.36.3+k3s1", "serverArgs": ` + serverArgs + `}]}}`
	return errors.Join(os.WriteFile(releaseData+".new", []byte(content), 0o600), os.Rename(releaseData+".new", releaseData))
}

// installKinds installs kinds of infrastructure without a provider: the tests write their status.
func installKinds(ctx context.Context) error {
	for _, kind := range []string{"BootMachine", "PlaneCluster", "PlaneMachine", "PlaneMachineTemplate"} {
		if err := define(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}
