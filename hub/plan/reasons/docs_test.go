package reasons

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumented: each reason is on a page for users.
func TestDocumented(t *testing.T) {
	var pages strings.Builder
	for _, pattern := range []string{"../../../docs/*.md", "../../../docs/kinds/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			pages.Write(read(t, path))
		}
	}
	names := map[string]bool{}
	for _, r := range table {
		names[r.Name] = true
	}
	constant := regexp.MustCompile(`(?m)^\t\w+ += "(\w+)"$`)
	for _, source := range []string{"reasons.go", "../rollout/rules.go"} {
		found := constant.FindAllSubmatch(read(t, source), -1)
		if len(found) < 5 {
			t.Errorf("%s has %d reasons", source, len(found))
		}
		for _, match := range found {
			names[string(match[1])] = true
		}
	}
	for name := range names {
		if !strings.Contains(pages.String(), "`"+name+"`") {
			t.Errorf("no page under docs has the reason %s", name)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
