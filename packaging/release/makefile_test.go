package release

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestEnvironmentOfABuilder: what is built for machines of others does not depend on the processor that a builder builds for.
func TestEnvironmentOfABuilder(t *testing.T) {
	if _, err := os.ReadFile("../../Makefile"); err != nil { // a cached result is of this Makefile
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--silent", "--directory", "../..",
		"--eval", "environment: ; @echo $$GOAMD64 $$GOARM64 $$GOFIPS140", "environment")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") }),
		"GOAMD64=v3", "GOARM64=v9.0,lse", "GOFIPS140=latest")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "v1 v8.0 off\n" {
		t.Errorf("got %q, %v", out, err)
	}
}
