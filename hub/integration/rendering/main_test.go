// Package rendering holds the tests of what a cluster's specification, the objects that it names and the release data come to on machines.
// They share one hub, which has release data from a file.
package rendering

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/hub/testenv"
)

// env is the hub that all tests share, releaseData the file with its release data.
var (
	env         *testenv.Env
	releaseData string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
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
	return testenv.Main(m, testenv.Options{ReleaseData: releaseData}, &env)
}

// writeReleaseData replaces the file by data about the release that test clusters have, with some arguments of its servers.
func writeReleaseData(serverArgs string) error {
	content := `{"k3s": {"releases": [{"version": "v1.36.3+k3s1", "serverArgs": ` + serverArgs + `}]}}`
	return errors.Join(os.WriteFile(releaseData+".new", []byte(content), 0o600), os.Rename(releaseData+".new", releaseData))
}
