package host

import (
	"os"
	"strings"
	"testing"
)

// TestRunWithTheUsualOOMScore shows that a program below the agent, as periodic instructions are, does not inherit what guards the agent when
// memory runs out, and that the agent keeps it.
func TestRunWithTheUsualOOMScore(t *testing.T) {
	before, err := os.ReadFile(oomScoreFile)
	must(t, err)
	must(t, os.WriteFile(oomScoreFile, []byte("300"), 0)) // less than before takes a privilege that a test may not have
	defer func() { must(t, os.WriteFile(oomScoreFile, before, 0)) }()
	for name, spool := range map[string]string{"periodic": "", "one-time": t.TempDir() + "/spool"} {
		command := sh("cat /proc/self/oom_score_adj")
		command.Spool = spool
		got, err := Machine{}.Run(t.Context(), command)
		if err != nil || string(got.Stdout) != "0\n" {
			t.Errorf("%s: the program has the score %q, %v", name, got.Stdout, err)
		}
	}
	if own, err := os.ReadFile(oomScoreFile); strings.TrimSpace(string(own)) != "300" || err != nil {
		t.Errorf("the agent has the score %q, %v", own, err)
	}
}
