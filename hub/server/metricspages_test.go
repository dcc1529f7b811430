package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// TestMetricsPages: the documentation has the name of each metric of the hub, and none that the hub does not have: an alert about such a
// metric never fires. Those of tunnels have their names in parts.
func TestMetricsPages(t *testing.T) {
	code := namesIn(t, "..", ".go", regexp.MustCompile(`"(drover_[a-z_]*[a-z])"`))
	pages := namesIn(t, "../../docs", ".md", regexp.MustCompile(`\b(drover_[a-z_]*[a-z])\b`))
	if len(code) < 15 {
		t.Fatalf("there are metrics that the test does not find: %v", sets.List(code))
	}
	for _, name := range sets.List(code.Difference(pages)) {
		t.Errorf("no page has %s", name)
	}
	for _, name := range sets.List(pages.Difference(code)) {
		histogram := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			histogram = strings.TrimSuffix(histogram, suffix)
		}
		if !code.Has(histogram) {
			t.Errorf("a page has %s, which does not exist", name)
		}
	}
}

// namesIn returns what the group of a pattern matches in the files below a directory, but not in tests.
func namesIn(t *testing.T, dir, extension string, pattern *regexp.Regexp) sets.Set[string] {
	t.Helper()
	names := sets.Set[string]{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != extension || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range pattern.FindAllSubmatch(content, -1) {
			names.Insert(string(match[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
