package report

import (
	"testing"

	"github.com/drover-dev/drover/plans"
)

func TestLargeReportsAreTrimmed(t *testing.T) {
	big := make([]byte, 4<<20)
	for step, most := range map[int]int{0: outputsBudget, 1: outputsBudget / 8, 2: outputsBudget / 64} {
		got := trimOutputs(map[string][]byte{"a": big, "b": big, "c": []byte("short")}, step)
		total := 0
		for _, output := range got {
			total += len(output)
		}
		if total > most+100 || string(got["c"]) != "short" {
			t.Errorf("step %d: %d bytes", step, total)
		}
	}
	periodic := trimPeriodic(map[string]plans.PeriodicOutput{"a": {Stdout: big, Stderr: big}}, 0)["a"]
	if len(periodic.Stdout)+len(periodic.Stderr) > periodicBudget+100 {
		t.Errorf("%d bytes", len(periodic.Stdout)+len(periodic.Stderr))
	}
}
