package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// TestAgentBefore has a machine on which another agent has applied the plan of a hub that knows no plan-state.
func TestAgentBefore(t *testing.T) {
	tests := map[string]struct {
		applied bool
		history string
		runs    int
	}{
		"applied here":                          {applied: true, history: "same", runs: 0},
		"applied here, not reported":            {history: "same", runs: 1},
		"applied on a machine of the same name": {applied: true, runs: 1},
		"another plan was the last one here":    {applied: true, history: "other", runs: 1},
		"history is no history":                 {applied: true, history: "broken", runs: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.AppliedPlanDirectory = "/agent/applied"
				raw, err := plans.Plan{Instructions: []plans.Instruction{once("a", "ok", false)}}.Encode()
				if err != nil {
					t.Fatal(err)
				}
				w.secret.hub(func(data plans.SecretData) {
					data[plans.KeyPlan] = raw
					if test.applied {
						data[plans.KeyAppliedChecksum] = []byte(plans.Checksum(raw))
					}
				})
				newest := map[string]string{
					"same": fmt.Sprintf(`{"Plan":%s,"Checksum":%q}`, raw, plans.Checksum(raw)), "other": `{"Plan":{},"Checksum":"0"}`, "broken": "{",
				}[test.history]
				for path, text := range map[string]string{"/agent/applied/20260101-000000-applied.plan": `{"Checksum":"1"}`,
					"/agent/applied/20260102-000000-applied.plan": newest} {
					if text == "" {
						continue
					}
					if err := w.host.WriteFile(path, []byte(text), fs.WithMode(0o600)); err != nil {
						t.Fatal(err)
					}
				}
				w.start()
				w.waitAMinute()
				w.stop()
				if got := w.ran(); len(got) != test.runs {
					t.Errorf("ran %v", got)
				}
				next := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("b", "ok", false)}}, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				if got := w.ran(); len(got) != test.runs+1 || w.secret.status().AppliedChecksum != next {
					t.Errorf("the next plan: ran %v", got)
				}
			})
		})
	}
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.options.AppliedPlanDirectory = "/agent/applied"
		w.start()
		var last string
		for i := range 70 {
			last = w.secret.deliver(plans.Plan{Files: []plans.File{file("/etc/a", fmt.Sprint(i))}}, 1)
			w.waitAMinute()
		}
		w.stop()
		names, _ := w.host.ReadDir("/agent/applied")
		if len(names) != maxAppliedPlans {
			t.Errorf("kept %d plans", len(names))
		}
		newest := w.host.Files()["/agent/applied/"+names[len(names)-1]]
		if !strings.Contains(string(newest.Content), `"Checksum":"`+last) || newest.Attrs.Mode != 0o600 {
			t.Errorf("the newest is %s", newest.Content)
		}
	})
}
