package engine

import (
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// TestPeriodicWorkOfAKilledAgent has an agent that was killed while a periodic instruction of an earlier plan ran: what that has left in
// its folder is removed by the next agent, unless it shall be kept.
func TestPeriodicWorkOfAKilledAgent(t *testing.T) {
	for name, preserve := range map[string]bool{"removed": false, "preserved": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.PreserveWorkDirectory = preserve
				left := "/agent/work/periodic/" + plans.Checksum([]byte("an earlier plan")) + "_0/image"
				if err := w.host.WriteFile(left, []byte("large"), fs.WithMode(0o600)); err != nil {
					t.Fatal(err)
				}
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				if _, found := w.host.Files()[left]; found != preserve {
					t.Errorf("the file is there: %t", found)
				}
			})
		})
	}
}

// TestSourcesWithTheSamePlan shows that a file with the plan of the hub, or of another file, has runs of its own: neither ends what the
// other runs.
func TestSourcesWithTheSamePlan(t *testing.T) {
	id := journal.AttemptID{Checksum: "0123456789abcdef", Attempt: 2}
	units := map[string]string{}
	for _, source := range []string{"", "local/a", "local/b"} {
		unit := New(Options{Name: source}).unit(id, 3)
		if other, taken := units[unit]; taken {
			t.Errorf("%s is a unit of %q and of %q", unit, source, other)
		}
		units[unit] = source
	}
	if _, found := units["system-agent-0123456789ab-2-3"]; !found {
		t.Errorf("got %v", units)
	}
}
