package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// upgradedHelper is a process whose binary is replaced while it runs.
func upgradedHelper() int {
	if err := os.Rename(os.Args[0]+".new", os.Args[0]); err != nil {
		return 1
	}
	path, err := ownBinary()
	if err != nil {
		return 1
	}
	ours, err := os.Stat("/proc/self/exe")
	if err != nil {
		return 1
	}
	found, err := os.Stat(path)
	if err != nil || !os.SameFile(ours, found) {
		return 1
	}
	fmt.Println(path)
	return 0
}

// TestUpgradedAgentStartsItself shows that the shim is of the version that wrote its spec, whatever was installed since.
func TestUpgradedAgentStartsItself(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	path := filepath.Join(t.TempDir(), "agent")
	must(t, os.WriteFile(path, self, 0o700), os.WriteFile(path+".new", []byte("newer"), 0o700))
	cmd := exec.Command(path)
	cmd.Env = []string{"RUN_TEST_UPGRADED=1"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "/proc/") {
		t.Errorf("got %q, %v", out, err)
	}
}
