package main

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// TestAppVersion: a build of a commit without a version has a version of the chart that can be ordered, and the tag of the images of that
// commit.
func TestAppVersion(t *testing.T) {
	for _, test := range []struct {
		args          []string
		file, version string
		app           string
	}{
		{[]string{"-version", "v0.0.0+abc1234", "-app-version", "abc1234"}, "drover-0.0.0+abc1234.tgz", "0.0.0+abc1234", "abc1234"},
		{[]string{"-version", "v1.2.3"}, "drover-1.2.3.tgz", "1.2.3", "v1.2.3"},
	} {
		dir := t.TempDir()
		if err := run(append(test.args, "-out", dir, "-source-date-epoch", "1700000000")); err != nil {
			t.Fatal(err)
		}
		loaded, err := loader.LoadFile(filepath.Join(dir, test.file))
		if err != nil {
			t.Fatal(err)
		}
		if loaded.Metadata.Version != test.version || loaded.Metadata.AppVersion != test.app {
			t.Errorf("%v give the versions %s and %s", test.args, loaded.Metadata.Version, loaded.Metadata.AppVersion)
		}
		rendered, err := renderChart(t, loaded, serverURL)
		if err != nil {
			t.Fatal(err)
		}
		if want := "image: \"drover/hub:" + test.app + "\"\n"; !strings.Contains(rendered, want) {
			t.Errorf("%v: the image is not %s", test.args, want)
		}
	}
}
