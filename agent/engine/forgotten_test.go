package engine

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

// TestReportForgotten shows that B6 cannot happen: a hub that was restored from a backup of before the report is told again, by the same
// process, and nothing runs again.
func TestReportForgotten(t *testing.T) {
	tests := map[string]struct {
		command string
		want    []string
	}{
		"of a success": {"ok", []string{"in-progress/0/0", "succeeded/0/1", "succeeded/0/1"}},
		"of a failure": {"bad", []string{"in-progress/0/0", "failed/1/0", "failed/1/0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("a", test.command, true)}}, 1)
				w.start()
				w.waitAMinute()
				w.secret.hub(func(data plans.SecretData) {
					for _, key := range plans.AgentKeys() {
						delete(data, key)
					}
					data[plans.KeyPlanState], data[plans.KeyPlanRevision] = []byte(plans.StateInProgress), []byte("1")
				})
				w.waitAMinute()
				w.stop()
				if diff := cmp.Diff(test.want, w.secret.history()); diff != "" {
					t.Error(diff)
				}
				if got := w.secret.status(); got.AppliedChecksum != checksum && got.FailedChecksum != checksum {
					t.Errorf("got %+v", got)
				}
				if len(w.ran()) != 1 {
					t.Errorf("ran %v", w.ran())
				}
			})
		})
	}
}
