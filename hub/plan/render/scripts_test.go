package render

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// clockPrograms are the programs by which a script sees time pass: it does so only while the script sleeps, so that no limit depends on how
// fast the machine is. They keep the time in the file clock below $FAKE.
var clockPrograms = map[string]string{
	"date":  "#!/bin/sh\nnow=0\n[ ! -s \"$FAKE/clock\" ] || read -r now <\"$FAKE/clock\"\necho \"$now\"\n",
	"sleep": "#!/bin/sh\nnow=0\n[ ! -s \"$FAKE/clock\" ] || read -r now <\"$FAKE/clock\"\necho \"$((now + $1))\" >\"$FAKE/clock\"\n",
	"sync":  "#!/bin/sh\n",
}

// writePrograms writes programs to a folder.
func writePrograms(t *testing.T, dir string, programs ...map[string]string) {
	t.Helper()
	// A process that another test starts meanwhile would have the program open for writing for a moment, in which nobody can execute it
	// (golang.org/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for _, set := range programs {
		for name, program := range set {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// idempotent runs the script for a command that appends a line to a file, as an attempt at a plan.
func idempotent(t *testing.T, dir, attempt string, command ...string) (string, error) {
	t.Helper()
	script := filepath.Join(dir, "idempotent.sh")
	if err := os.WriteFile(script, idempotentSh, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh",
		append([]string{script, "restart", "value", "hash", command[0], dir}, command[1:]...)...)
	cmd.Env = append(os.Environ(), "CATTLE_AGENT_ATTEMPT_NUMBER="+attempt)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A command runs once in each attempt; one that fails, or is cut off, has not run.
func TestIdempotentScript(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ran")
	lines := func() int {
		content, _ := os.ReadFile(file)
		return strings.Count(string(content), "\n")
	}
	appending := []string{"sh", "-c", `echo "$1" >>"$2"`, "sh", "a b", file}
	for i, step := range []struct {
		attempt string
		want    int
	}{{"1", 1}, {"1", 1}, {"2", 2}, {"2", 2}, {"1", 3}, {"", 4}, {"", 5}} {
		if out, err := idempotent(t, dir, step.attempt, appending...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := lines(); got != step.want {
			t.Errorf("step %d: ran %d times, want %d", i, got, step.want)
		}
	}
	if _, err := idempotent(t, dir, "7", "sh", "-c", "exit 3"); err == nil {
		t.Error("a failure was hidden")
	}
	if out, err := idempotent(t, dir, "7", appending...); err != nil || lines() != 6 {
		t.Errorf("a command was not run after a failure in the same attempt: %v: %s", err, out)
	}
}

// TestScriptsFindTheDistribution: on a machine whose /usr/local is read-only or a mount point, RKE2 and k3s are in /opt, which is not in
// the PATH of an agent that is in /usr/bin, as that of a package.
func TestScriptsFindTheDistribution(t *testing.T) {
	for name, script := range map[string]string{
		"save-snapshot": saveSnapshotSh, "delete-snapshot": deleteSnapshotSh, "encryption-keys": encryptionKeysSh,
		"restore-reset": restoreResetSh, "rotate-certificates": rotateCertificatesSh,
	} {
		path, rest, found := strings.Cut(script, "\nPATH=$PATH:/usr/local/bin:/opt/rke2/bin:/opt/bin\n")
		if !found || strings.Contains(path, "\n\"$runtime\"") || !strings.Contains(rest, "\"$runtime\"") && !strings.Contains(rest, "\"$@\"") {
			t.Errorf("%s does not set PATH before it runs the distribution", name)
		}
	}
}
