package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
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

// TestReproducible writes the archive twice, the second time from copies of the files with other times.
func TestReproducible(t *testing.T) {
	archive := func(dir string) []byte {
		loaded, err := load(dir, "v1.2.3", time.Unix(1700000000, 0))
		if err != nil {
			t.Fatal(err)
		}
		path, err := util.Save(loaded, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	other := filepath.Join(t.TempDir(), "drover")
	err := filepath.WalkDir("drover", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(other, strings.TrimPrefix(path, "drover"))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(path) // of a link: what it leads to
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			return err
		}
		return os.Chtimes(target, time.Unix(1, 0), time.Unix(1, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(archive("drover"), archive(other)) {
		t.Error("the same chart gives other bytes")
	}
}
