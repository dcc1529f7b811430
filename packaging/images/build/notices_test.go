package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notices")
	// The test itself is a program with modules.
	if out, _, err := run(t, "notices", "--output="+file, os.Args[0]); err != nil || out != "" {
		t.Fatalf("output %q, %v", out, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nGo standard library go1", "\ngithub.com/spf13/cobra v", "\ngithub.com/google/go-containerregistry v"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%q is missing in %d bytes", want, len(raw))
		}
	}
	if _, _, err := run(t, "notices", "--output="+file, "notices.go"); err == nil || !strings.Contains(err.Error(), "notices.go") {
		t.Errorf("for a file that is no program: %v", err)
	}
}
