package run

import (
	"os"
	"strings"
	"testing"
)

// TestRunWithDefaultOOMScore shows that a program below the agent, as periodic instructions are, does not inherit what guards the agent
// when memory runs out, and that the agent keeps it.
func TestRunWithDefaultOOMScore(t *testing.T) {
	before, err := os.ReadFile(oomScoreFile)
	must(t, err)
	must(t, os.WriteFile(oomScoreFile, []byte("300"), 0)) // less than before takes a privilege that a test may not have
	defer func() { must(t, os.WriteFile(oomScoreFile, before, 0)) }()
	for name, runDir := range map[string]string{"periodic": "", "one-time": t.TempDir() + "/run"} {
		command := sh("cat /proc/self/oom_score_adj")
		command.RunDir = runDir
		got, err := Exec{}.Run(t.Context(), command)
		if err != nil || string(got.Stdout) != "0\n" {
			t.Errorf("%s: the program has the score %q, %v", name, got.Stdout, err)
		}
	}
	if own, err := os.ReadFile(oomScoreFile); strings.TrimSpace(string(own)) != "300" || err != nil {
		t.Errorf("the agent has the score %q, %v", own, err)
	}
}
