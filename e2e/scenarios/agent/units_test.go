//go:build e2e

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits runs the tests of agent/host/run that need a real service manager on a host that has one.
func TestUnits(t *testing.T) {
	t.Parallel()
	compiled := filepath.Join(t.TempDir(), "run.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", compiled, "../../../agent/host/run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the tests: %v\n%s", err, out)
	}
	n := newNode(t, "units")
	n.copy(compiled, "/root/run.test")
	out := n.do("/root/run.test", "-test.v", "-test.run", "^TestSystemd")
	t.Log(out)
	if strings.Contains(out, "--- SKIP") || !strings.Contains(out, "--- PASS: TestSystemdRun") {
		t.Error("not all of them ran")
	}
}
